from tests.datasets.files import refusal, write_jsonl
from typedrag.datasets import load_dataset


def row(identifier: str, *documents: str) -> dict:
    return {
        "id": identifier,
        "question": f"is {identifier} good?",
        "intrinsic_scores": {"ambiguous": 2},
        "DocStream": [{"Click_Cnt": 0.5, "CluewebURLHash": d, "Url": "http://x"} for d in documents],
        "gpt4_decomposition": {"headers": [], "subquestions": [], "queries": ["a"]},
        "nonfactoid_score": 0.9,
    }


def test_questions_have_the_documents_that_were_clicked(tmp_path):
    write_jsonl(tmp_path / "researchy_questions.train.jsonl", row("r1", "B2", "A1", "B2"), row("r2"))
    write_jsonl(tmp_path / "researchy_questions.test.jsonl", row("r3", "C3"))
    dataset = load_dataset("researchy-questions", tmp_path)
    assert [(e.id, e.subset, e.passage_ids) for e in dataset.examples] == [
        ("r1", "train", ("B2", "A1")),
        ("r2", "train", ()),
        ("r3", "test", ("C3",)),
    ]
    assert dataset.examples[0].question == "is r1 good?"
    assert len(load_dataset("researchy-questions", tmp_path, subset="test").examples) == 1


def test_rows_that_do_not_fit_are_named(tmp_path):
    file = write_jsonl(tmp_path / "researchy_questions.test.jsonl", row("r1"), {**row("r2"), "question": ""})
    assert refusal("researchy-questions", file).startswith(f"{file}, line 2 cannot be used: question: ")
    file = write_jsonl(file, {**row("r2"), "DocStream": [{"Url": "http://x"}]})
    assert refusal("researchy-questions", file).startswith(f"{file}, line 1 cannot be used: DocStream.0.CluewebURLHash")
