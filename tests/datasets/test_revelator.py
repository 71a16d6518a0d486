import pytest

from tests.builders.native import COMPOUND
from tests.datasets.files import refusal, write_jsonl
from typedrag.core.errors import InputError
from typedrag.core.question_types import Route
from typedrag.datasets import load_dataset

SOLVED = [{"question": "Who designed it?", "answer": "John Fowler"}]
ROWS = [
    {"role": "router", "question": "Why?", "route": "single-step"},
    {"role": "decomposer", "question": "When and why?", "sub_queries": ["When was it?", "Why was it?"]},
    {"role": "refiner", "question": "Where was its designer born?", "solved": SOLVED, "query": "Where was he born?"},
    {"role": "relevance", "question": "Why?", "passage": {"title": "T", "text": "P"}, "relevant": False},
    {"role": "ending", "question": "Where was its designer born?", "solved": SOLVED, "ending": False},
]
ROWS = [{"id": str(n), "part": "train" if n else "test", "origin": "musique", **row} for n, row in enumerate(ROWS)]


def test_each_role_has_the_inputs_of_its_signature(tmp_path):
    dataset = load_dataset("revelator", write_jsonl(tmp_path / "rows.jsonl", *ROWS))
    inputs = {e.subset: set(e.inputs().keys()) for e in dataset.examples}
    assert inputs == {
        "router": {"question"},
        "decomposer": {"question"},
        "refiner": {"question", "solved"},
        "relevance": {"question", "passage"},
        "ending": {"question", "solved"},
    }
    assert dataset.examples[0].route is Route.SINGLE_STEP
    assert dataset.fingerprint
    assert [e.id for e in dataset.split("test")] == ["0"] and len(dataset.split("all")) == 5
    with pytest.raises(InputError, match="no split is called 'dev'"):
        dataset.split("dev")


def test_roles_are_subsets(tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl", *ROWS)
    dataset = load_dataset("revelator", file, subset="router,ending")
    assert [e.subset for e in dataset.examples] == ["router", "ending"]
    assert "it is for the refiner" in dataset.skipped[1]
    assert "no subset is called 'routers'" in refusal("revelator", file, subset="routers")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROWS[0], "route": "sideways"}, "route"),
        ({**ROWS[0], "role": "king"}, "role"),
        ({**ROWS[0], "part": "dev"}, "part"),
        ({**ROWS[3], "relevant": "yes"}, "relevant"),
        ({**ROWS[4], "solved": [{"question": "Who?"}]}, "solved.0.answer"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(tmp_path, row, said):
    assert said in refusal("revelator", write_jsonl(tmp_path / "rows.jsonl", row))


def test_compound_questions_have_the_splits_that_their_builder_dealt(tmp_path):
    parts = ["train"] * 8 + ["validation"] * 3 + ["test"] * 5
    rows = [{**COMPOUND, "id": f"c{n}", "question": f"{n}?", "subset": part} for n, part in enumerate(parts)]
    dataset = load_dataset("compound", write_jsonl(tmp_path / "compound.jsonl", *rows))
    for part in ("train", "validation", "test"):
        assert [e.subset for e in dataset.split(part)] == [part] * parts.count(part)
    assert len(dataset.split("all")) == 16


def test_compound_rows_that_do_not_fit_are_refused(tmp_path):
    torn = write_jsonl(tmp_path / "compound.jsonl", {**COMPOUND, "sub_answers": ["1890"]})
    assert "2 sub_queries and 1 sub_answers" in refusal("compound", torn)
    assert "Build one" in refusal("compound") and "Build one" in refusal("revelator")
