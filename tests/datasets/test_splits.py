import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.datasets.files import write_questions
from typedrag.core.errors import InputError
from typedrag.datasets import SPLITS, Dataset, load_dataset, sources
from typedrag.text.words import question_key

PARTS = ("train", "dev", "test")
OFFICIAL = {
    "2wikimultihopqa", "hotpotqa", "musique", "natural-questions", "nf-cats", "researchy-questions", "squad",
    "triviaqa", "wikiasp", "wikipassageqa",
}  # fmt: skip
ASKED = st.lists(
    st.tuples(st.sampled_from([f"{'Wy'[n % 2]}hy is {n // 2} so" for n in range(24)]), st.sampled_from(PARTS)),
    min_size=1,
    max_size=40,
)


def load(name: str, asked: list[tuple[str, str]]) -> Dataset:
    """A dataset that asks these; spaces tell apart those that are asked again."""
    asked = [(f"{question}{' ' * n}?", part) for n, (question, part) in enumerate(asked)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            return load_dataset(name, write_questions(name, Path(folder), asked))
        except InputError:  # such as a folder without a file
            assume(False)
            raise


def sides(dataset: Dataset) -> dict[str, set[str]]:
    """The splits that each question is in."""
    found: dict[str, set[str]] = defaultdict(set)
    for split in SPLITS:
        for e in dataset.split(split):
            found[question_key(e.question)].add(split)
    return found


@pytest.mark.parametrize("name", [s.name for s in sources()])
@settings(max_examples=15, deadline=None)
@given(ASKED)
def test_no_question_is_on_two_sides(name, asked):
    dataset = load(name, asked)
    assert all(len(splits) == 1 for splits in sides(dataset).values())
    if dataset.default_split == "all":
        assert sides(dataset).keys() == {question_key(e.question) for e in dataset.examples}


@pytest.mark.parametrize("name", sorted(OFFICIAL))
@settings(max_examples=15, deadline=None)
@given(ASKED)
def test_what_is_tested_on_by_default_is_no_part_for_training(name, asked):
    dataset = load(name, asked)
    part = "part" if name == "wikiasp" else "subset"
    parts = {e[part] for e in dataset.examples}
    if len(parts) > 1 and "train" in parts:
        assert dataset.default_split == "test"
        assert "train" not in {e[part] for e in dataset.split("test")}
        assert {e[part] for e in dataset.split("train")} <= {"train"}
    assert sides(dataset).keys() == {question_key(e.question) for e in dataset.examples}


def test_pairs_of_answers_to_a_question_are_together():
    ten = [(f"Why is {n} so", "train") for n in range(10)] * 2
    for name in ("webgpt", "pairs"):
        dataset = load(name, ten)
        assert len(dataset.examples) == 20
        assert sorted(map(len, sides(dataset).values())) == [1] * 10
        assert {split: len(dataset.split(split)) for split in SPLITS}["train"] == 10


def test_the_dev_file_is_what_is_tested_on():
    asked = [(f"Why is {n} so", "train" if n < 40 else "dev") for n in range(60)]
    both, train = load("musique", asked), load("musique", asked[:40])
    assert both.default_split == "test" and train.default_split == "all"
    assert [e.id for e in both.split("test")] == [str(n) for n in range(40, 60)]
    assert [e.id for e in both.split("validation")] == [e.id for e in train.split("validation")] != []
    assert len(both.split("train")) == 30


def test_a_question_that_is_in_the_dev_file_too_is_not_trained_on():
    asked = [(f"Why is {n} so", "train") for n in range(30)]
    dataset = load("natural-questions", [*asked, *((question, "dev") for question, _ in asked[:10])])
    assert len(dataset.split("test")) == 10
    trained = {question_key(e.question) for split in ("train", "validation") for e in dataset.split(split)}
    assert trained and trained.isdisjoint(question_key(e.question) for e in dataset.split("test"))
