"""The sample corpus that typedrag ships, with questions and labelled passages."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import Dataset, build_dataset, example
from typedrag.datasets.reading import Entry

FOLDER = Path(__file__).with_name("sample")
PASSAGES = FOLDER / "passages.jsonl"


@dataclass(frozen=True)
class SampleQuestion:
    """A question over the sample corpus, and the passages that a good answer needs."""

    id: str
    question: str
    question_type: QuestionType
    passage_ids: tuple[str, ...]


def sample_questions() -> list[SampleQuestion]:
    """The 24 sample questions, four of each non-factoid type."""
    rows = map(json.loads, (FOLDER / "questions.jsonl").read_text("utf-8").splitlines())
    return [
        SampleQuestion(r["id"], r["question"], QuestionType(r["question_type"]), tuple(r["passage_ids"])) for r in rows
    ]


def load_sample(path: Path | None = None) -> Dataset:
    """The sample questions, with `question_type` and `passage_ids`."""
    if path:
        raise InputError("dataset 'sample' is part of the package", "Leave out --path, or name dataset 'file'")
    entries = (Entry(asdict(question), question.id) for question in sample_questions())
    return build_dataset("sample", entries, lambda entry: example(**entry.value), source="the package")
