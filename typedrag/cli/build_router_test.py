"""`typedrag datasets build router-test`: the test set of HANRAG's router."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import chosen
from typedrag.cli.writing import Writing, build_options

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("router-test")
@click.option("--straightforward", type=_FILE, multiple=True, required=True,
    help="CommonsenseQA's dev_rand_split.jsonl, and its test file. Repeatable.")  # fmt: skip
@click.option("--single-step", multiple=True, required=True, metavar="NAME[=PATH]",
    help="A dataset of single-step questions, such as squad=dev-v1.1.json. Repeatable.")  # fmt: skip
@click.option("--complex", "complex_", multiple=True, required=True, metavar="NAME[=PATH]",
    help="A dataset of complex questions, such as musique=FOLDER. Repeatable.")  # fmt: skip
@click.option("--compound", type=_FILE, required=True,
    help="The output of datasets build compound; its test subset is used.")  # fmt: skip
@click.option("--each", type=click.IntRange(1), help="Questions of each route; default: 1,500.")
@click.option("--seed", type=int, help="Random seed; default: 0.")
@build_options
def command(
    straightforward: tuple[Path, ...],
    single_step: tuple[str, ...],
    complex_: tuple[str, ...],
    compound: Path,
    out: Path,
    as_json: bool,
    **settings: Any,
) -> None:
    """Draw as many questions of each route, and measure routers on them by `typedrag revelator evaluate`.

    Of a dataset, those of its test split are drawn from; an LM is not needed.
    """
    from typedrag.builders import build_router_test
    from typedrag.builders.rows import counted
    from typedrag.datasets.question_sets import read_single_hop
    from typedrag.question_types import Route

    easy = [single.question for path in straightforward for single in read_single_hop(path)]
    questions = {
        Route.STRAIGHTFORWARD: {"straightforward": easy},
        Route.SINGLE_STEP: dict(map(_tested, single_step)),
        Route.COMPOUND: dict([_tested(f"compound={compound}")]),
        Route.COMPLEX: dict(map(_tested, complex_)),
    }
    built = build_router_test(questions, **chosen(**settings))
    counts = counted(built.rows, "route", "origin")
    Writing(out, None, 1, as_json).finish(built, counts)
    if not as_json:
        for name, count in counts.items():
            say(f"{name}: {count:,}")


def _tested(named: str) -> tuple[str, list[str]]:
    """The name of a dataset and the questions of its test split, from NAME or NAME=PATH."""
    from typedrag.datasets import load_dataset

    name, _, path = named.partition("=")
    dataset = load_dataset(name, path or None)
    return name, [example.question for example in dataset.split(dataset.default_split)]
