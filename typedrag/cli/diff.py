"""`typedrag diff`: what changed between two programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from typedrag.experiments.diff import Change, Demonstration, PredictorDiff, ProgramDiff

_WIDTH = 120
_LONGEST_VALUE = 400
_UNGUARDED = "they no longer say never to follow instructions in what is quoted, such as passages"


@click.command()
@click.argument("base")
@click.argument("compiled")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write an HTML page to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all texts in full.")
def command(base: str, compiled: str, html: Path | None, as_json: bool) -> None:
    """Show what changed from BASE to COMPILED: options, instructions, demonstrations.

    Each is the folder of a compiled program, models:/NAME@ALIAS, models:/NAME/VERSION, runs:/ID/PATH,
    or the name of a program, for its uncompiled state. Words are marked as [-removed-] or {+added+}.
    """
    from typedrag.cli.opening import say
    from typedrag.experiments.diff import diff_programs, read_sides, write_diff

    diff = diff_programs(*read_sides(base, compiled))
    if html:
        write_diff(diff, html)
        say(f"what changed: {html}")
    if as_json:
        click.echo(json.dumps(diff.to_dict(), ensure_ascii=False, indent=1))
    elif not html:
        _draw(diff)


def _draw(diff: ProgramDiff) -> None:
    from typedrag.cli.tables import wide_console

    console = wide_console(_WIDTH, markup=False, emoji=False)
    total = len(diff.predictors) + len(diff.unchanged)
    console.print(
        _printable(f"{diff.compiled} against {diff.base}: {len(diff.predictors)} of {total} predictors changed")
    )
    for line in _about(diff):
        console.print(_printable(line), style="dim")
    _print_changes("option", diff.options, console)
    for predictor in diff.predictors:
        console.print()
        only = {"base": f" (only in {diff.base})", "compiled": f" (only in {diff.compiled})", "": ""}[predictor.only]
        console.print(_printable(predictor.name + only), style="bold")
        _print_predictor(predictor, console)


def _about(diff: ProgramDiff) -> Iterator[str]:
    from typedrag.experiments.formats import format_estimate, format_p

    about = diff.about
    if about is None:
        return
    facts = [("by", about.optimizer), ("against", about.metric), ("on", about.dataset), ("at", about.created)]
    if any(value for _, value in facts):
        yield "compiled " + ", ".join(f"{word} {value}" for word, value in facts if value)
    for measure, score in about.compiled.items():
        before = format_estimate(about.base.get(measure))
        paired = format_estimate(about.differences.get(measure), signed=True)
        yield f"{measure}: {format_estimate(score)}, before {before}, difference {paired}, n = {score.n}"
    if about.verdict:
        corrected = f", corrected for {about.tests} tests" if about.tests > 1 else ""
        yield f"verdict: {about.verdict}, p of the paired test {format_p(about.p)}{corrected}"


def _print_predictor(predictor: PredictorDiff, console: Console) -> None:
    for line in predictor.signature:
        console.print(_printable(f"its signature differs: {line}"))
    if predictor.words:
        console.print(_marked(predictor.words))
    if predictor.unguarded:
        console.print(_UNGUARDED, style="yellow")
    _print_changes("field", predictor.descriptions, console)
    _print_changes("setting", predictor.settings, console)
    if predictor.removed or predictor.added or predictor.reordered:
        order = " in another order" if predictor.reordered else ""
        counts = f"{len(predictor.removed)} removed, {len(predictor.added)} added, {predictor.kept} kept{order}"
        console.print(f"demonstrations: {counts}", style="dim")
    for mark, style, demonstrations in (("-", "red", predictor.removed), ("+", "green", predictor.added)):
        for demonstration in demonstrations:
            console.print(_said(demonstration, mark), style=style)


def _marked(pieces: Iterable[Any]) -> Text:
    """The words of a diff, marked as by `git diff --word-diff`."""
    from rich.text import Text

    text = Text()
    for piece in pieces:
        if piece.kind == "same":
            text.append(_printable(piece.text))
            continue
        opening, closing, style = ("{+", "+}", "green") if piece.kind == "added" else ("[-", "-]", "red")
        words = piece.text.rstrip()
        text.append(f"{opening}{_printable(words)}{closing}", style)
        text.append(piece.text[len(words) :])
    return text


def _print_changes(what: str, changes: Iterable[Change], console: Console) -> None:
    for change in changes:
        before, after = (_short(value) for value in (change.before, change.after))
        console.print(_printable(f"{what} {change.name}: {before} -> {after}"))


def _said(demonstration: Demonstration, mark: str) -> str:
    from typedrag.programs.artifact import AUGMENTED

    lines = [f"{name}: {_short(value)}" for name, value in demonstration.items() if name != AUGMENTED]
    return _printable("\n".join(f"{mark if i == 0 else ' '} {line}" for i, line in enumerate(lines)))


def _short(value: Any) -> str:
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _printable(text: str) -> str:
    """A stranger's text without control characters, which could steer a terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if category(c) == "Cc" and c not in "\n\t" else c for c in text)
