import json

from tests.datasets.files import refusal, write_json, write_jsonl
from typedrag.datasets import load_dataset
from typedrag.experiments.answers_file import read_answers
from typedrag.experiments.config import ProgramConfig

ADAPTIVE = {
    "dataset": "squad",
    "question_id": "56e1",
    "question_text": "Who?",
    "answers_objects": [{"number": "", "date": {"day": ""}, "spans": ["Ada", "Ada L."]}],
    "contexts": [{"idx": 0, "title": "T", "paragraph_text": "P", "is_supporting": True}],
}
LIVERAG = {
    "Index": 7,
    "Question": "Why?",
    "Answer": "Because.",
    "Supporting_Documents": [{"content": "C", "doc_id": "<urn:uuid:1>"}, {"content": "D", "doc_id": "<urn:uuid:2>"}],
    "Answer_Claims": {"direct": ["Because."], "useful": [], "useless": []},
    "Session": "First",
}


def test_adaptive_rags_questions_are_in_the_split_of_their_file(tmp_path):
    folder = tmp_path / "squad"
    write_jsonl(folder / "test_subsampled.jsonl", ADAPTIVE)
    write_jsonl(folder / "dev_500_subsampled.jsonl", {**ADAPTIVE, "question_id": "v", "question_text": "When?"})
    dataset = load_dataset("adaptive-rag", folder)
    assert dataset.default_split == "test"
    [test], [validation] = dataset.split("test"), dataset.split("validation")
    assert (test.id, test.question, test.answers, validation.id) == ("56e1", "Who?", ("Ada", "Ada L."), "v")
    assert dataset.split("train") == ()
    assert "question_id" in refusal("adaptive-rag", write_jsonl(folder / "x" / "test_subsampled.jsonl", {"a": 1}))


def test_predictions_of_adaptive_rags_code_are_answers(tmp_path):
    write_jsonl(tmp_path / "test_subsampled.jsonl", ADAPTIVE)
    [question] = load_dataset("adaptive-rag", tmp_path).examples
    file = write_json(tmp_path / "prediction.json", {"56e1": ["Ada"], "other": "No."})
    answers = read_answers(ProgramConfig(program=f"answers:{file}"))
    assert answers.find_answer(question).answer == "Ada"


def test_liverags_scope_is_the_number_of_its_documents(tmp_path):
    one = {**LIVERAG, "Index": 8, "Question": "How?", "Supporting_Documents": json.dumps([{"doc_id": "3"}])}
    file = write_jsonl(tmp_path / "liverag.jsonl", LIVERAG, one)
    both, single = load_dataset("liverag", file).examples
    assert (both.id, both.subset, both.answers) == ("7", "multi-document", ("Because.",))
    assert (both.passage_ids, both.session) == (("<urn:uuid:1>", "<urn:uuid:2>"), "First")
    assert (single.subset, single.passage_ids) == ("single-document", ("3",))
    assert [e.id for e in load_dataset("liverag", file, subset="single-document").examples] == ["8"]
    assert "Supporting_Documents" in refusal(
        "liverag", write_jsonl(tmp_path / "bad.jsonl", {**one, "Supporting_Documents": []})
    )
