from collections import Counter
from pathlib import Path

from tests.datasets.files import refusal
from typedrag.core.question_types import QuestionType
from typedrag.datasets import load_dataset, sample_questions


def test_the_sample_is_a_dataset():
    dataset = load_dataset("sample")
    assert [e.toDict() for e in dataset.examples] == [
        {"id": q.id, "question": q.question, "question_type": q.question_type, "passage_ids": q.passage_ids}
        for q in sample_questions()
    ]
    assert dataset.licence == "Apache-2.0"


def test_each_type_is_in_each_split():
    dataset = load_dataset("sample")
    for name, count in {"train": 2, "validation": 1, "test": 1}.items():
        types = Counter(e.question_type for e in dataset.split(name))
        assert types == dict.fromkeys(QuestionType.non_factoid(), count)


def test_it_takes_no_path():
    assert "is part of the package" in refusal("sample", Path("questions.jsonl"))
