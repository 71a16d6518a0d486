"""`typedrag calibrate`: what the LM holds of question types, fitted to labelled questions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from typedrag.cli.opening import say
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, writing_lm


@click.command("calibrate")
@click.option("--dataset", default="nf-cats", show_default=True, help="With labelled question types.")
@click.option("--path", type=click.Path(path_type=Path), help="File or folder of the dataset; default: its home.")
@click.option("--subset", help="Of the dataset; default: train if there is one, else all.")
@click.option("--limit", type=click.IntRange(1), default=400, show_default=True, help="Questions, drawn by lot.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the lot.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The JSON file to write.")
@writing_lm
@click.option("--json", "as_json", is_flag=True, help="How good it is, as JSON.")
def command(
    dataset: str,
    path: Path | None,
    subset: str | None,
    limit: int,
    seed: int,
    writing: Writing,
) -> None:
    """Calibrate the LM as a type classifier: --option type_classifier=lm-calibrated:OUT then uses it.

    The LM's probabilities of all types are fitted to the labels, as frequent as they are in the
    dataset. What it says is kept in --store: after a kill, the same command pays only for what is missing.
    """
    from typedrag.datasets import load_dataset
    from typedrag.datasets.dataset import hash_of
    from typedrag.errors import InputError
    from typedrag.optimizers.compile.type_calibration import calibrate_type_classifier
    from typedrag.question_types import QuestionType

    given = {"subset": subset} if subset else {}
    examples = [e for e in load_dataset(dataset, path, **given).examples if e.get("question_type")]
    if not subset and (of_train := [e for e in examples if e.get("subset") == "train"]):
        examples, subset = of_train, "train"  # what is measured on the others is to have seen none of them
    if not examples:
        raise InputError(f"dataset '{dataset}' has no question types", "Use one that has, such as nf-cats")
    drawn = sorted(examples, key=lambda e: hash_of(e.id, seed))[:limit]
    judgments = writing.open_store()
    with writing.using_lm(), counting("questions", len(drawn)) as show:
        made = calibrate_type_classifier(drawn, judgments, threads=writing.threads, on_done=show)
    of = " ".join(filter(None, (dataset, subset)))
    made.calibration.model_copy(update={"dataset": of}).save(writing.out)
    if made.failed:
        say(f"left out: {made.failed:,} questions of which the LM named no type")
    if never := [t for t in QuestionType if t not in made.calibration.bias]:
        say(f"never named, since no question is labelled so: {', '.join(never)}")
    if writing.as_json:
        click.echo(json.dumps({"bare": made.bare._asdict(), "calibrated": made.crossed._asdict()}, indent=1))
        return
    for name, found in (("as it is", made.bare), ("calibrated", made.crossed)):
        say(f"{name}: accuracy {found.accuracy:.3f}, calibration error {found.calibration_error:.3f}")
    click.echo(str(writing.out))
