"""`typedrag datasets build aspects`: sub-aspects and sub-answers of questions with long answers."""

from __future__ import annotations

from pathlib import Path

import click

from typedrag.cli.datasets import dataset_options, open_dataset
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm


@click.command("aspects")
@click.option("--dataset", "name", default="wikipassageqa", show_default=True, help="A dataset with long answers.")
@dataset_options
@click.option("--split", type=click.Choice(["all", "train", "validation", "test"]), default="all", show_default=True,
    help="The part of it to divide.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), help="Maximum questions, balanced over subsets and types.")
@click.option("--demonstrations", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Questions with aspects and sub_answers that show the LM how, as for --dataset file.")  # fmt: skip
@build_options
@writing_lm
def command(
    name: str,
    path: Path | None,
    subset: str | None,
    fields: dict[str, str],
    split: str,
    limit: int | None,
    demonstrations: Path | None,
    writing: Writing,
) -> None:
    """Divide the long answer of each question into sub-answers, and name their sub-aspects (RichRAG).

    The result is read by --dataset file. Replies of the LM are stored in --store as they come: after an
    interruption, the same command asks only for the missing ones.
    """
    from typedrag.builders import build_aspects
    from typedrag.builders.rows import counted
    from typedrag.datasets.dataset import load_dataset, sample

    questions = open_dataset(name, path, subset, fields).split(split)
    drawn = sample(questions, limit or len(questions)) if questions else []
    shown = load_dataset("file", demonstrations).examples if demonstrations else ()
    judgments = writing.open_store()
    with writing.using_lm(), counting("questions", total=len(drawn)) as show:
        built = build_aspects(drawn, judgments, demonstrations=shown, threads=writing.threads, on_done=show)
    writing.finish(built, counted(built.rows, "subset"), of="questions")
