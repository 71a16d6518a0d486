"""`typedrag datasets build question-types`: questions by type and form, for classifiers of question types."""

from __future__ import annotations

from typing import Any

import click

from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm
from typedrag.question_types import QuestionForm, QuestionType


@click.command("question-types")
@click.option("--domain", "domains", required=True, multiple=True,
    help='What the questions are about and who asks: "a bank\'s help pages: pensioners". Repeatable.')  # fmt: skip
@click.option("--type", "types", type=click.Choice([t.value for t in QuestionType]), multiple=True,
    help="A type to write questions of; repeatable. Default: all.")  # fmt: skip
@click.option("--form", "forms", type=click.Choice([f.value for f in QuestionForm]), multiple=True,
    help="A form to write them in; repeatable. Default: all.")  # fmt: skip
@click.option("--each", type=click.IntRange(1, 20), help="Questions of each type and form; default: 5.")
@build_options
@writing_lm
def command(domains: tuple[str, ...], writing: Writing, **flags: Any) -> None:
    """Write questions in domains of yours, as people type them, and keep those whose type two labels agree on.

    What comes out is read by --dataset everyday. An LM that writes good questions is a large one.
    """
    from typedrag.builders import QuestionTypesSettings, build_question_types
    from typedrag.builders.rows import counted

    settings = QuestionTypesSettings(domains=domains, **{name: value for name, value in flags.items() if value})
    store = writing.open_store()
    with writing.using_lm(), counting("texts") as show:
        built = build_question_types(store, settings, threads=writing.threads, on_done=show)
    writing.finish(built, counted(built.rows, "type", "form"))
