import pytest

from tests.builders.native import publish
from tests.datasets.files import write_jsonl
from typedrag.core.errors import InputError
from typedrag.datasets.open_domain import read_question_set


def test_native_files_are_read_by_the_name_of_their_dataset(tmp_path):
    files = publish(tmp_path)
    found = read_question_set(f"natural-questions:{files['nq']}")
    assert (found.name, found.skipped) == ("nq", 0)
    assert [(e.question, e.answers) for e in found.examples] == [("where is leeds", ("England", "UK"))]
    assert read_question_set(f"squad:{files['squad']}", "train").name == "squad"
    assert len(read_question_set(f"musique:{files['musique']}").examples) == 1
    [example] = read_question_set(str(files["two_wiki"])).examples
    assert example.answers == ("Crown Prince Hyomyeong",)


def test_what_a_loader_leaves_out_is_counted(tmp_path):
    nq = {"question": "where is leeds", "answer": ["England"]}
    file = write_jsonl(tmp_path / "NQ-open.dev.jsonl", nq, nq, {"question": "why", "answer": [" "]})
    with pytest.raises(InputError):
        read_question_set(f"natural-questions:{file}")
    file = write_jsonl(tmp_path / "NQ-open.dev.jsonl", nq, nq)
    assert read_question_set(f"natural-questions:{file}").skipped == 1


@pytest.mark.parametrize(
    ("where", "subset", "problem"),
    [
        ("nowhere.jsonl", None, "'nowhere.jsonl' is neither a dataset nor a file. Write DATASET, DATASET:PATH or FILE"),
        ("nowhere.jsonl", "train", "nowhere.jsonl is a file without subsets"),
        ("squad:nowhere.json", None, "nowhere.json does not exist"),
    ],
)
def test_what_there_is_not_is_refused(where, subset, problem):
    with pytest.raises(InputError, match=problem):
        read_question_set(where, subset)
