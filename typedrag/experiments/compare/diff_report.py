"""What changed between two programs as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typedrag.errors import unusable
from typedrag.experiments import formats
from typedrag.experiments.compare.diff import ProgramDiff
from typedrag.experiments.pages import render_page
from typedrag.files.text_files import write_text
from typedrag.metrics.arithmetic.estimate import Estimate
from typedrag.programs.artifact.compiled import Score

PAGE = Path(__file__).with_name("diff_page")
_LINE = 100


def write_diff(diff: ProgramDiff, out: Path) -> None:
    """Write the page of `render_diff`.

    Raises:
        InputError: If the file cannot be written.
    """
    try:
        write_text(out, render_diff(diff))
    except OSError as error:
        raise unusable(out, error) from None


def render_diff(diff: ProgramDiff) -> str:
    """The page, as HTML.

    All texts of programs are strangers' texts: they are escaped, and the page's policy lets no script
    run and nothing be loaded.
    """
    filters: dict[str, Callable[..., Any]] = {"value": _value, "score": format_score, "p": formats.format_p}
    return render_page(PAGE, filters, diff=diff)


def format_score(score: Score | None, signed: bool = False) -> str:
    """A score with its interval, or a dash for none.

    Args:
        score: May be a difference.
        signed: Whether it is written with its sign, as differences are.

    Example:
        >>> format_score(Score(0.5, 0.4, 0.6, 100)), format_score(None)
        ('0.500 [0.400, 0.600]', '-')
    """
    estimate = Estimate(score.value, score.low, score.high, score.n) if score else None
    return formats.format_estimate(estimate, signed=signed)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _LINE else json.dumps(value, ensure_ascii=False, indent=1)
