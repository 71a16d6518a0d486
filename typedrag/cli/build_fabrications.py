"""`typedrag datasets build fabrications`: right answers and fabrications, to test judges with."""

from __future__ import annotations

from pathlib import Path

import click

from typedrag.cli.datasets import dataset_options, open_dataset
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm


@click.command("fabrications")
@click.option("--dataset", "name", default="wiki-nfqa", show_default=True, help="A dataset with gold answers.")
@dataset_options
@click.option("--split", type=click.Choice(["all", "train", "validation", "test"]), help="Default: as in evaluate.")
@click.option("--limit", type=click.IntRange(1), help="Maximum questions, balanced over subsets and types.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@build_options
@writing_lm
def command(
    name: str,
    path: Path | None,
    subset: str | None,
    fields: dict[str, str],
    split: str | None,
    limit: int | None,
    seed: int,
    writing: Writing,
) -> None:
    """Write a right answer and fabrications of the same length and style to each question.

    Replies of the LM are stored in --store as they come: after an interruption, the same command asks only
    for the missing ones. `typedrag judges check --path fabrications=FILE` then tests judges with them.
    """
    from typedrag.builders import FabricationsSettings, build_fabrications
    from typedrag.builders.rows import counted
    from typedrag.datasets.dataset import sample

    dataset = open_dataset(name, path, subset, fields)
    questions = dataset.split(split or dataset.default_split)
    drawn = sample(questions, limit or len(questions), seed) if questions else []
    settings, judgments = FabricationsSettings(seed=seed), writing.open_store()
    with writing.using_lm(), counting("questions", total=len(drawn)) as show:
        built = build_fabrications(drawn, judgments, settings, threads=writing.threads, on_done=show)
    counts = counted([candidate for row in built.rows for candidate in row["candidates"]], "kind")
    writing.finish(built, counts, of="answers")
