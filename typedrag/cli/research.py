"""`typedrag research cost` and `diff`: what runs have spent, and what changed between two programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from typedrag.cli import options
from typedrag.cli.terminal import draw_table, print_json, say, wide_console
from typedrag.core.errors import InputError
from typedrag.experiments.formats import format_estimate, format_p, write_page
from typedrag.lms.cost import Price, Spending, format_dollars

if TYPE_CHECKING:
    from typedrag.experiments.diff import Change, PredictorDiff, ProgramDiff

_LONGEST_VALUE = 400
_UNGUARDED = "they no longer say never to follow instructions in what is quoted, such as passages"


@options.command()
def cost(
    paths: Annotated[tuple[Path, ...], options.Metavar("RUN…")],
    *,
    price: Annotated[
        str | None, options.Metavar("PROMPT,COMPLETION"),
        "Dollars per million tokens read and written, of calls that had no price.",
    ] = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Add up what RUNs have spent, finished or not.

    A RUN is the --out of evaluate, compile, sweep or ask --file, or a folder that holds such. What kept
    replies and judgments have answered cost nothing and is not in it.
    """
    from typedrag.experiments.cost import read_costs, spending_fields

    known = None
    if price is not None:
        prompt, _, completion = price.partition(",")
        try:
            known = Price.model_validate({"prompt": prompt, "completion": completion})
        except ValidationError:
            hint = "Write --price PROMPT,COMPLETION in dollars per million tokens, such as 0.5,1.5"
            raise InputError(f"--price '{price}' is no price", hint) from None
    costs = read_costs(paths, known)
    total = sum((cost.spent for cost in costs), Spending())
    if as_json:
        print_json({"runs": [cost.to_dict() for cost in costs], "total": spending_fields(total)})
        return

    def row(name: str, questions: int | None, spent: Spending) -> list[str]:
        usage = spent.usage
        counts = (usage.lm_calls, usage.prompt_tokens, usage.completion_tokens)
        dollars = "—" if spent.cost is None else format_dollars(spent.cost)
        count = "" if questions is None else f"{questions:,}"
        return [name, count, *(f"{n:,}" for n in counts), dollars, f"{spent.unpriced:,}" if spent.unpriced else ""]

    rows = []
    for each in costs:
        rows.append(row(str(each.path), each.questions, each.spent))
        if len(each.roles) > 1:
            rows += [row(f"  {role}", None, spent) for role, spent in each.roles.items()]
    headings = ("run", "questions", "LM calls", "prompt tokens", "completion tokens", "dollars", "unpriced calls")
    draw_table(headings, [*rows, row("all", sum(each.questions or 0 for each in costs), total)])


@options.command(old={"--html": "--out"})
def diff(
    base: str,
    compiled: str,
    *,
    out: Annotated[Path | None, "Write an HTML page to this file."] = None,
    as_json: Annotated[bool, "Print JSON, an object a line, with all texts in full.", "--json"] = False,
) -> None:
    """Show what changed from BASE to COMPILED: options, instructions, demonstrations.

    Each is the folder of a compiled program, models:/NAME@ALIAS, models:/NAME/VERSION, runs:/ID/PATH,
    or the name of a program, not compiled and with default options. Options that differ were configured: a
    compile changes none. Words are marked as [-removed-] or {+added+}.
    """
    from typedrag.experiments.diff import diff_programs, read_sides, render_diff

    difference = diff_programs(*read_sides(base, compiled))
    if out:
        write_page(render_diff(difference), out)
        say(f"what changed: {out}")
    if as_json:
        print_json(difference.to_dict())
    elif not out:
        _draw_diff(difference)


def _draw_diff(diff: ProgramDiff) -> None:
    console = wide_console(120, markup=False, emoji=False)
    total = len(diff.predictors) + len(diff.unchanged)
    console.print(f"{diff.compiled} against {diff.base}: {len(diff.predictors)} of {total} predictors changed")
    if about := diff.about:
        lines = []
        facts = [("by", about.optimizer), ("against", about.metric), ("on", about.dataset), ("at", about.created)]
        if any(value for _, value in facts):
            lines.append("compiled " + ", ".join(f"{word} {value}" for word, value in facts if value))
        for measure, score in about.compiled.items():
            before = format_estimate(about.base.get(measure))
            paired = format_estimate(about.differences.get(measure), signed=True)
            lines.append(f"{measure}: {format_estimate(score)}, before {before}, difference {paired}, n = {score.n}")
        if about.verdict:
            corrected = f", corrected for {about.tests} tests" if about.tests > 1 else ""
            lines.append(f"verdict: {about.verdict}, p of the paired test {format_p(about.p)}{corrected}")
        for line in lines:
            console.print(line, style="dim")
    _print_changes("configured option", diff.options, console)
    for predictor in diff.predictors:
        console.print()
        only = {"base": f" (only in {diff.base})", "compiled": f" (only in {diff.compiled})", "": ""}[predictor.only]
        console.print(predictor.name + only, style="bold")
        _print_predictor(predictor, console)


def _print_predictor(predictor: PredictorDiff, console: Console) -> None:
    from typedrag.programs.artifact import AUGMENTED

    for line in predictor.signature:
        console.print(f"its signature differs: {line}")
    if predictor.words:
        text = Text()
        for piece in predictor.words:  # marked as by `git diff --word-diff`
            if piece.kind == "same":
                text.append(piece.text)
                continue
            opening, closing, style = ("{+", "+}", "green") if piece.kind == "added" else ("[-", "-]", "red")
            words = piece.text.rstrip()
            text.append(f"{opening}{words}{closing}", style)
            text.append(piece.text[len(words) :])
        console.print(text)
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
            lines = [f"{name}: {_short(value)}" for name, value in demonstration.items() if name != AUGMENTED]
            shown = "\n".join(f"{mark if n == 0 else ' '} {line}" for n, line in enumerate(lines))
            console.print(shown, style=style)


def _print_changes(what: str, changes: Iterable[Change], console: Console) -> None:
    for change in changes:
        console.print(f"{what} {change.name}: {_short(change.before)} -> {_short(change.after)}")


def _short(value: Any) -> str:
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
