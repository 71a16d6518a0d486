import pytest

from tests.datasets.files import refusal, write_jsonl
from typedrag.datasets import load_dataset

ROW = {"question": "Why is it so?", "first": "Because.", "second": "It is not.", "preference": 1}


def test_a_pair_is_like_one_of_webgpt_and_ties_are_listed(tmp_path):
    rows = [ROW, {**ROW, "question": "How?", "preference": -0.5, "subset": "eli5"}, {**ROW, "preference": 0}]
    dataset = load_dataset("pairs", write_jsonl(tmp_path / "pairs.jsonl", *rows))
    first, second = dataset.examples
    assert first.answers_compared == ("Because.", "It is not.")
    assert (first.preference, second.preference, second.subset) == (1.0, -0.5, "eli5")
    assert len({e.id for e in dataset.examples}) == 2
    assert "a tie" in dataset.skipped[0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "preference": "first"}, "line 1 cannot be used: preference"),
        ({**ROW, "second": " "}, "line 1 cannot be used: second"),
        (["a", "b"], "it is no object with fields"),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, row, said):
    assert said in refusal("pairs", write_jsonl(tmp_path / "pairs.jsonl", row))


def test_what_cannot_be_read_is_said(tmp_path):
    assert "is read from a file" in refusal("pairs")
    file = write_jsonl(tmp_path / "pairs.jsonl", ROW)
    assert "no field is called 'winner'" in refusal("pairs", file, fields={"winner": "w"})
