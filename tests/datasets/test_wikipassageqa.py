import pytest

from tests.datasets.files import refusal, write, write_json
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset

HEADER = "QID\tQuestion\tDocumentID\tDocumentName\tRelevantPassages\n"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train.tsv", HEADER + "3369\tWhy do they play?\t672\tOne.html\t0,2\n")
    write(tmp_path / "test.tsv", HEADER + "12\tHow did it end?\t9\tTwo.html\t1\n")
    write_json(tmp_path / "document_passages.json", {"672": {"0": "A.", "1": "B.", "2": "C."}, "9": {"1": "D."}})
    return tmp_path


def test_questions_have_the_passages_that_answer_them(folder):
    dataset = load_dataset("wikipassageqa", folder)
    first, second = dataset.examples
    assert (first.id, first.question, first.subset) == ("train-3369", "Why do they play?", "train")
    assert first.passage_ids == ("672_0", "672_2")
    assert first.references == (Reference("A. C.", 1),)
    assert second.id == "test-12"
    assert load_dataset("wikipassageqa", folder / "test.tsv").examples == (second,)


def test_rows_that_do_not_fit_are_named(folder):
    file = write(folder / "dev.tsv", HEADER + "1\tWhy?\t672\tOne.html\t0\n2\tHow?\t672\tOne.html\t7\n")
    said = refusal("wikipassageqa", folder, subset="dev")
    assert said.startswith(
        f"{file}, line 3 cannot be used: document_passages.json has no passage '7' of document '672'"
    )
    write(file, HEADER + "1\tWhy?\t672\tOne.html\n")
    assert refusal("wikipassageqa", file).startswith(f"{file}, line 2 cannot be used: it has 4 columns, the header 5")
    (folder / "document_passages.json").unlink()
    assert refusal("wikipassageqa", folder).startswith(f"there is no {folder}/document_passages.json")
