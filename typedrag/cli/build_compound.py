"""`typedrag datasets build compound`: questions with several parts about one entity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import chosen
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm
from typedrag.errors import InputError


@click.command("compound")
@click.option("--questions", type=click.Path(path_type=Path, exists=True), multiple=True,
    help="Single questions: SQuAD 1.1's files, or rows with entity, question and answer. Repeatable.")  # fmt: skip
@click.option("--passages", type=click.Path(path_type=Path, exists=True), multiple=True,
    help="Instead: passages with titles, for the LM to write single questions on. Repeatable.")  # fmt: skip
@click.option("--entities", type=click.IntRange(1), help="Number of entities to write questions about; default: all.")
@click.option("--per-entity", type=click.IntRange(1), help="Compound questions to try for each entity; default: 6.")
@click.option("--limit", type=click.IntRange(1),
    help="Compound questions to try in all; single questions are written only for these. Default: all.")  # fmt: skip
@click.option("--seed", type=int, help="Random seed; default: 0.")
@build_options
@writing_lm
def command(
    questions: tuple[Path, ...],
    passages: tuple[Path, ...],
    writing: Writing,
    **flags: Any,
) -> None:
    """Join single questions about one entity into compound ones, each with its parts and answers.

    Replies of the LM are stored in --store as they come: after an interruption, the same command asks only
    for the missing ones.
    """
    from itertools import chain

    from typedrag.builders import CompoundSettings, build_compound, write_single_hop
    from typedrag.builders.rows import counted
    from typedrag.datasets.question_sets import read_single_hop
    from typedrag.retrieval import read_passages

    if bool(questions) == bool(passages):
        raise InputError("either single questions or passages are needed", "Give --questions or --passages")
    settings = CompoundSettings(**chosen(**flags))
    judgments = writing.open_store()
    left_out: dict[str, int] = {}
    with writing.using_lm():
        if passages:
            with counting("single questions") as show:
                singles, report = write_single_hop(
                    lambda: read_passages(passages), judgments, settings, threads=writing.threads, on_done=show
                )
            left_out = dict(report.left_out)
            say(f"{len(singles):,} single questions")
        else:
            singles = list(chain.from_iterable(read_single_hop(path) for path in questions))
        with counting("compound questions") as show:
            built = build_compound(singles, judgments, settings, threads=writing.threads, on_done=show)
    built.left_out.update(left_out)
    writing.finish(built, counted(built.rows, "subset"))
