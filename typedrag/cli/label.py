"""`typedrag label`: a person grades the answers of runs at the terminal, without knowing whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import click

from typedrag.cli import options
from typedrag.cli.compare import Runs
from typedrag.cli.terminal import claim_file, echo, say
from typedrag.core.errors import InputError
from typedrag.experiments.results import read_run


@options.command(name="label")
def command(
    folders: Runs,
    *,
    out: Annotated[Path, "JSONL file of the grades, for compare --labels; one that is there is continued."],
    scale: Annotated[
        Literal["antique", "right"] | None, "ANTIQUE's 1 to 4, or right and wrong. Default: that of --out, or antique."
    ] = None,
    seed: Annotated[int, "Random seed of the order."] = 0,
) -> None:
    """Grade the answers of RUNs at the terminal, one key an answer.

    Questions come in random order, and nothing shows which run an answer is from. Each grade is written at
    once: stop whenever you like, and resume with the same command. 50 to 100 graded questions are enough
    for compare --labels.
    """
    from typedrag.experiments.labels import SCALES, Grades, answers_to_grade

    answers = answers_to_grade([read_run(folder) for folder in folders], seed)
    grades = Grades(claim_file(out), scale)
    keys, written = SCALES[grades.scale], [key for key, (_, answer) in answers.items() if answer]
    while item := next((key for key in answers if grades.get(key) is None), None):
        question, answer = answers[item]
        if answer is None:  # nobody need read a failed answer
            grades.add(item, grades.worst)
            continue
        click.clear()
        echo(f"{sum(grades.get(key) is not None for key in written)} of {len(written)} answers graded\n")
        echo(question, bold=True)
        echo(f"\n{answer.answer.strip()}\n")
        for letter, (_, meaning) in keys.items():
            echo(f"  {letter}  {meaning}")
        echo("\n  p  show its passages     u  take the last grade back     q  stop")
        while (pressed := _press()) not in (*keys, "u", "q"):
            for number, passage in enumerate(answer.passages if pressed == "p" else (), 1):
                echo(f"\n[{number}] {passage.titled}")
            if pressed == "p" and not answer.passages:
                echo("\nIt was written from no passage.")
        if pressed == "q":
            break
        if pressed in keys:
            grades.add(item, keys[pressed][0])
        elif last := next((key for key in reversed([*grades]) if key in written), None):
            grades.add(last, None)
    say(f"{sum(grades.get(key) is not None for key in written)} of {len(written)} answers graded: {out}")


def _press() -> str:
    try:
        return click.getchar().lower()
    except (EOFError, KeyboardInterrupt):
        return "q"
    except OSError:
        raise InputError("grades are keys that are pressed, and there is no terminal", "Run it in one") from None
