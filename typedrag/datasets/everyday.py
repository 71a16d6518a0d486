"""Questions as people type them, which the type classifiers are trained on."""

from __future__ import annotations

from pathlib import Path

import dspy

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example, id_of
from typedrag.datasets.reading import Entry, Layout, Text, TypeName, parse, read_rows

QUESTIONS = Path(__file__).with_name("everyday") / "questions.jsonl"


class _Row(Layout):
    question: Text
    type: TypeName
    form: Text
    source: Text = "written"


@source(
    "everyday",
    about="questions as people type them into a search box, a chat or a support desk, by type and form",
    licence="Apache-2.0; those from NF-CATS: MIT",
    home="the package",
)
def load_everyday(path: Path | None = None) -> Dataset:
    """Read questions with their `question_type`, and their form as `subset` (see `QuestionForm`).

    Args:
        path: A file of the same layout, such as one that `typedrag datasets build question-types` made; by default
            the one that typedrag ships.

    Raises:
        InputError: If a row does not fit.
    """
    return build_dataset("everyday", read_rows(path or QUESTIONS), _example, source=str(path or "the package"))


def _example(entry: Entry) -> dspy.Example:
    row = parse(_Row, entry)
    return example(
        id=id_of(row.form, row.question),
        question=row.question,
        question_type=row.type,
        subset=row.form,
        source=row.source,
    )
