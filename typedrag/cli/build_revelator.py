"""`typedrag datasets build revelator`: the training data of HANRAG's revelator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import chosen
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("revelator")
@click.option("--straightforward", type=_FILE, help="CommonsenseQA's train_rand_split.jsonl.")
@click.option("--single-step", type=_FILE, multiple=True,
    help="NQ-open.train.jsonl, or DPR's biencoder-nq-train.json with passages. Repeatable.")  # fmt: skip
@click.option("--musique", type=_FILE, help="musique_ans_v1.0_train.jsonl.")
@click.option("--two-wiki", type=_FILE, help="2WikiMultihopQA's train.json.")
@click.option("--compound", type=_FILE, help="The output of datasets build compound; its train subset is used.")
@click.option("--exclude", type=_FILE, multiple=True, help="Test questions to leave out, one a row. Repeatable.")
@click.option(
    "--limit", type=click.IntRange(1), help="Maximum rows of each role, origin and label to train on; default: 50,000."
)
@click.option(
    "--noise", type=click.IntRange(0), help="Irrelevant passages for each query with a relevant one; default: 2."
)
@click.option("--validation-share", type=click.FloatRange(0, 1, max_open=True),
    help="Share of the questions for validation; default: 0.05.")  # fmt: skip
@click.option("--test-share", type=click.FloatRange(0, 1, max_open=True),
    help="Share of the questions for the test; default: 0.05.")  # fmt: skip
@click.option("--seed", type=int, help="Random seed; default: 0.")
@click.option("--label-relevance", is_flag=True, help="Let --lm label relevance, instead of using the files' labels.")
@build_options
@writing_lm
def command(
    straightforward: Path | None,
    single_step: tuple[Path, ...],
    musique: Path | None,
    two_wiki: Path | None,
    compound: Path | None,
    exclude: tuple[Path, ...],
    noise: int | None,
    label_relevance: bool,
    writing: Writing,
    **settings: Any,
) -> None:
    """Turn the files of other datasets into rows for the revelator's five roles.

    An LM is needed only for --label-relevance.
    """
    from itertools import chain

    from typedrag.builders import RevelatorSettings, RevelatorSources, build_revelator
    from typedrag.builders import label_relevance as labelled
    from typedrag.builders.rows import counted
    from typedrag.datasets.question_sets import read_single_hop

    amounts = RevelatorSettings(**chosen(noise_per_query=noise, **settings))
    sources = RevelatorSources(straightforward, single_step, musique, two_wiki, compound)
    tested = {single.question for single in chain.from_iterable(read_single_hop(path) for path in exclude)}
    built = build_revelator(sources, amounts, exclude=tested)
    if label_relevance:
        total = sum(row["role"] == "relevance" for row in built.rows)
        with writing.using_lm(), counting("labels", total=total) as show:
            built = labelled(built, writing.open_store(), threads=writing.threads, on_done=show)
    counts = counted(built.rows, "role", "part")
    writing.finish(built, counts)
    if not writing.as_json:
        for name, count in counts.items():
            say(f"{name}: {count:,}")
