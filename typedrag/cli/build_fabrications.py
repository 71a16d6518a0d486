"""`typedrag datasets build fabrications`: right answers beside fabrications, to test judges with."""

from __future__ import annotations

from pathlib import Path

import click

from typedrag.cli.datasets import dataset_options, open_dataset
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm


@click.command("fabrications")
@click.option("--dataset", "name", default="wiki-nfqa", show_default=True, help="Its questions have gold answers.")
@dataset_options
@click.option("--split", type=click.Choice(["all", "train", "validation", "test"]), help="Default: as evaluate has it.")
@click.option("--limit", type=click.IntRange(1), help="Questions at most, drawn in turn from each subset and type.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is drawn.")
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
    """Write to each question a right answer and wrong ones of its length and manner.

    What the LM writes is kept in --store as it comes: after a kill, the same command pays only for
    what is missing. `typedrag judges check --path fabrications=FILE` then says what each judge makes of them.
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
