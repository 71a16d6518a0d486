import re

import pytest

from tests.datasets.files import refusal, write_jsonl
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset


def pair(preference: float, identifier: str = "q1", **second) -> list[dict]:
    question = {"dataset": "eli5", "id": identifier, "full_text": "Why is it so?"}
    sides = [("Because. [1]", preference), ("It is not. [1][2]", -preference)]
    records = [
        {"question": question, "quotes": {"title": [], "extract": []}, "answer": text, "tokens": {}, "score": s}
        for text, s in sides
    ]
    return [records[0], {**records[1], **second}]


def test_a_comparison_has_two_answers_and_a_preference(tmp_path):
    file = write_jsonl(tmp_path / "comparisons.jsonl", pair(-0.5), pair(1, "q2"))
    first, second = load_dataset("webgpt", tmp_path).examples
    assert (first.question, first.subset) == ("Why is it so?", "eli5")
    assert first.answers_compared == ("Because. [1]", "It is not. [1][2]")
    assert (first.preference, second.preference) == (-0.5, 1)
    assert first.id != second.id
    assert len(load_dataset("webgpt", file).examples) == 2


def test_ties_and_repetitions_are_listed(tmp_path):
    file = write_jsonl(tmp_path / "comparisons.jsonl", pair(0.5), pair(0), pair(0.5))
    dataset = load_dataset("webgpt", file)
    assert len(dataset.examples) == 1
    assert dataset.skipped == (
        f"{file}, line 2: a tie: people prefer neither answer",
        f"{file}, line 3: it repeats {file}, line 1",
    )


def test_rows_that_do_not_fit_are_named(tmp_path):
    def said(value) -> str:
        return refusal("webgpt", write_jsonl(tmp_path / "comparisons.jsonl", pair(1, "good"), value))

    place = f"{tmp_path}/comparisons.jsonl, line 2 cannot be used: "
    assert said(pair(0.5, score=0.5)).startswith(f"{place}its scores 0.5 and 0.5 do not sum to 0")
    assert said(pair(0.5, answer="")).startswith(f"{place}answer_1: ")
    assert said(pair(0.5, question={"id": "q2"})).startswith(f"{place}its two records have different questions")
    assert said(pair(0.5)[:1]).startswith(f"{place}it is no list of two records")
    assert said({"question": "Why?"}).startswith(f"{place}question: ")


def test_the_papers_sample_has_long_answers_to_questions_that_begin_with_why_or_how(tmp_path):
    asked = {
        "q1": ("eli5", "Why is it so?"),
        "q2": ("eli5", "HOW, then?"),
        "q3": ("eli5", "What is it?"),
        "q4": ("triviaqa", "How many are there?"),
        "q5": ("eli5", "However, why?"),
    }
    rows = []
    for identifier, (subset, question) in asked.items():
        told = {"dataset": subset, "id": identifier, "full_text": question}
        rows.append([{**record, "question": told} for record in pair(1, identifier)])
    rows.append([{**record, "answer": "Because it is, as all know. [1]"} for record in pair(-1, "q6")])
    file = write_jsonl(tmp_path / "comparisons.jsonl", *rows)

    def ids(**options) -> set[str]:
        return {asked_of.question for asked_of in load_dataset("webgpt", file, **options).examples}

    assert ids(first_words="why, How", subset="eli5") == {"Why is it so?", "HOW, then?"}
    assert "How many are there?" in ids(first_words="why,how")
    assert len(load_dataset("webgpt", file, least_words=6).examples) == 1
    for options, said in (
        ({"subset": "reddit"}, "no subset is called 'reddit'. Subsets: eli5, triviaqa"),
        ({"least_words": 99}, f"none of the 6 comparisons of {file} is of this kind"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            load_dataset("webgpt", file, **options)
