"""`typedrag cost`: what runs have spent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from typedrag.experiments.cost import RunSpending
    from typedrag.lms.cost import Price, Spending

_HEADINGS = ("run", "questions", "LM calls", "prompt tokens", "completion tokens", "dollars", "unpriced calls")


def _read_price(_: click.Context, __: click.Parameter, text: str | None) -> Price | None:
    if text is None:
        return None
    from pydantic import ValidationError

    from typedrag.lms.cost import Price

    prompt, _comma, completion = text.partition(",")
    try:
        return Price.model_validate({"prompt": prompt, "completion": completion})
    except ValidationError:
        hint = "Write --price PROMPT,COMPLETION in dollars per million tokens, such as 0.5,1.5"
        raise InputError(f"--price '{text}' is no price", hint) from None


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@click.option(
    "--price",
    callback=_read_price,
    metavar="PROMPT,COMPLETION",
    help="Dollars per million tokens read and written, of calls that had no price.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(paths: tuple[Path, ...], price: Price | None, as_json: bool) -> None:
    """Add up what RUNs have spent, finished or not.

    A RUN is the --out of evaluate, compile, sweep or ask --file, or a folder that holds such. What kept
    replies and judgments have answered cost nothing and is not in it.
    """
    from typedrag.cli.tables import draw_table
    from typedrag.experiments.cost import read_costs, spending_fields
    from typedrag.lms.cost import Spending

    costs = read_costs(paths, price)
    total = sum((cost.spent for cost in costs), Spending())
    if as_json:
        summary = {"runs": [cost.to_dict() for cost in costs], "total": spending_fields(total)}
        click.echo(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    questions = sum(cost.questions or 0 for cost in costs)
    rows = [row for cost in costs for row in _rows(cost)]
    draw_table(_HEADINGS, [*rows, _row("all", questions, total)])


def _rows(cost: RunSpending) -> Iterator[Sequence[str]]:
    yield _row(str(cost.path), cost.questions, cost.spent)
    if len(cost.roles) > 1:
        for role, spent in cost.roles.items():
            yield _row(f"  {role}", None, spent)


def _row(name: str, questions: int | None, spent: Spending) -> Sequence[str]:
    from typedrag.lms.cost import format_dollars

    usage = spent.usage
    counts = (usage.lm_calls, usage.prompt_tokens, usage.completion_tokens)
    dollars = "—" if spent.cost is None else format_dollars(spent.cost)
    count = "" if questions is None else f"{questions:,}"
    return (name, count, *(f"{n:,}" for n in counts), dollars, f"{spent.unpriced:,}" if spent.unpriced else "")
