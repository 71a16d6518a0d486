from pathlib import Path

import pytest

from tests.datasets.files import refusal, write_json, write_jsonl
from typedrag.datasets import OPEN_DOMAIN_SETS, load_dataset, source_named
from typedrag.datasets.dataset import make_id
from typedrag.retrieval.index.sources import read_contexts

MUSIQUE = {
    "id": "2hop__1_2",
    "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "P", "is_supporting": True}],
    "question": "Who then?",
    "question_decomposition": [{"id": 1, "question": "Who?", "answer": "A", "paragraph_support_idx": 0}],
    "answer": "Ada",
    "answer_aliases": ["Ada L.", "Ada"],
    "answerable": True,
}
HOTPOT = {
    "_id": "5a8",
    "question": "Who?",
    "answer": "yes",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["T", 0], ["U", 1]],
    "context": [["T", ["S.", " Then."]], ["V", ["Noise."]], ["U", ["R."]]],
}
HOTPOT_OF_THE_HUB = {
    "id": "5a8",
    "question": "Who?",
    "answer": "yes",
    "supporting_facts": {"title": ["T", "U"], "sent_id": [0, 1]},
    "context": {"title": ["T", "V", "U"], "sentences": [["S.", " Then."], ["Noise."], ["R."]]},
}


def squad_file(*questions: dict) -> dict:
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": "C", "qas": list(questions)}]}]}


def squad(identifier: str, *answers: str) -> dict:
    marked = [{"text": text, "answer_start": 1} for text in answers]
    return {"id": identifier, "question": "Where?", "answers": marked}


def trivia(identifier: str, value: str, *aliases: str) -> dict:
    answer = {"Value": value, "Aliases": list(aliases), "NormalizedValue": value.lower(), "Type": "WikipediaEntity"}
    return {"QuestionId": identifier, "Question": "Which?", "QuestionSource": "x", "Answer": answer}


def publish_natively(folder: Path) -> dict[str, Path]:
    """A native file of each dataset, by its name."""
    return {
        "natural-questions": write_jsonl(
            folder / "NQ-open.dev.jsonl", {"question": "when", "answer": ["1", "one", "1"]}
        ),
        "triviaqa": write_json(
            folder / "unfiltered-web-dev.json", {"Data": [trivia("tc_1", "Sunset", "Sunset", "Dusk")]}
        ),
        "squad": write_json(folder / "dev-v1.1.json", squad_file(squad("56b", "Denver", "Denver", "in Denver"))),
        "musique": write_jsonl(folder / "musique_ans_v1.0_dev.jsonl", MUSIQUE),
        "hotpotqa": write_json(folder / "hotpot_dev_distractor_v1.json", [HOTPOT]),
        "2wikimultihopqa": write_json(folder / "dev.json", [{**HOTPOT, "evidences": []}]),
    }


ANSWERS = {
    "natural-questions": ("1", "one"),
    "triviaqa": ("Sunset", "Dusk"),
    "squad": ("Denver", "in Denver"),
    "musique": ("Ada", "Ada L."),
    "hotpotqa": ("yes",),
    "2wikimultihopqa": ("yes",),
}
HUB_ROWS = {
    "natural-questions": {"question": "when", "answer": ["1", "one", "1"]},
    "triviaqa": {
        "question_id": "tc_1",
        "question": "Which?",
        "entity_pages": {"title": []},
        "answer": {"value": "Sunset", "aliases": ["Sunset", "Dusk"], "normalized_value": "sunset", "type": "x"},
    },
    "squad": {
        "id": "56b",
        "question": "Where?",
        "context": "C",
        "answers": {"text": ["Denver", "Denver", "in Denver"], "answer_start": [1, 1, 1]},
    },
    "musique": MUSIQUE,
    "hotpotqa": HOTPOT_OF_THE_HUB,
    "2wikimultihopqa": {**HOTPOT_OF_THE_HUB, "type": "comparison"},
}


@pytest.mark.parametrize("name", ANSWERS)
def test_native_files_are_read(tmp_path, name):
    file = publish_natively(tmp_path / "native")[name]
    [example] = load_dataset(name, file).examples
    assert (example.answers, example.subset) == (ANSWERS[name], "validation")
    assert load_dataset(name, str(file.parent)).examples == (example,)
    assert load_dataset(name, file.parent, subset="validation").examples == (example,)
    assert "holds no file of subset 'train'" in refusal(name, file.parent, subset="train")


@pytest.mark.parametrize("data", OPEN_DOMAIN_SETS, ids=lambda data: data.name)
def test_the_hub_has_the_same_questions(tmp_path, hub, data):
    other = {**HUB_ROWS[data.name], "question": "Another?"}
    other |= {field: "other" for field in ("id", "question_id") if field in other}
    hub(data.hub, data.config or "default", train=[other], validation=[HUB_ROWS[data.name]])
    train, validation = load_dataset(data.name).examples
    assert (train.question, train.subset) == ("Another?", "train")
    assert (validation,) == load_dataset(data.name, publish_natively(tmp_path / "native")[data.name]).examples
    assert source_named(data.name).home.endswith(data.hub)


NEEDED = {
    "musique": (make_id("T", "P"),),
    "hotpotqa": (make_id("T", "S. Then."), make_id("U", "R.")),
    "2wikimultihopqa": (make_id("T", "S. Then."), make_id("U", "R.")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_question_of_several_hops_names_the_passages_that_it_needs(tmp_path, name):
    file = publish_natively(tmp_path)[name]
    [example] = load_dataset(name, file).examples
    assert example.get("passage_ids") == NEEDED.get(name)
    if name in NEEDED:
        assert set(NEEDED[name]) <= {p.passage.id for p in read_contexts([file])}


def test_no_passages_are_named_where_one_that_is_needed_did_not_come_with_the_question(tmp_path):
    row = {**HOTPOT, "context": HOTPOT["context"][:2]}  # as in the files of fullwiki
    [example] = load_dataset("hotpotqa", write_json(tmp_path / "hotpot_dev_fullwiki_v1.json", [row])).examples
    assert "passage_ids" not in example


@pytest.mark.parametrize(
    ("name", "file", "value", "place"),
    [
        (
            "triviaqa",
            "web-dev.json",
            {"Data": [trivia("1", "A"), {"QuestionId": "2"}]},
            "Data[1] cannot be used: question: Field required",
        ),
        ("triviaqa", "web-dev.json", {"data": []}, "cannot be used: it has no list in field 'Data'"),
        (
            "squad",
            "dev-v1.1.json",
            squad_file(squad("1", "A"), {**squad("2", "B"), "question": " "}),
            "data[0].paragraphs[0].qas[1] cannot be used: question: ",
        ),
        ("squad", "dev-v1.1.json", {"data": [{}]}, "data[0] cannot be used: it has no list in field 'paragraphs'"),
        (
            "hotpotqa",
            "hotpot_train_v1.1.json",
            [HOTPOT, {"_id": "x", "question": "Who?"}],
            "[1] cannot be used: answer",
        ),
        ("2wikimultihopqa", "dev.json", [{**HOTPOT, "answer": 7}], "[0] cannot be used: answer"),
    ],
)
def test_entries_of_json_files_that_do_not_fit_are_named(tmp_path, name, file, value, place):
    said = refusal(name, write_json(tmp_path / file, value))
    assert said.startswith(f"{tmp_path / file}")
    assert place in said


def test_lines_that_do_not_fit_are_named(tmp_path):
    file = write_jsonl(tmp_path / "NQ-open.train.jsonl", {"question": "when", "answer": ["1"]}, {"question": "who"})
    assert refusal("natural-questions", file).startswith(f"{file}, line 2 cannot be used: answer: Field required")
    file = write_jsonl(tmp_path / "musique_ans_v1.0_train.jsonl", {**MUSIQUE, "answer_aliases": "Ada"})
    assert refusal("musique", file).startswith(f"{file}, line 1 cannot be used: answer_aliases: ")


def test_answers_that_are_written_as_one_list_are_several(tmp_path):
    file = write_jsonl(tmp_path / "NQ-open.dev.jsonl", {"question": "when", "answer": ["['14', 'fourteen']", "14"]})
    assert load_dataset("natural-questions", file).examples[0].answers == ("14", "fourteen")


def test_a_question_without_an_answer_is_listed(tmp_path):
    file = write_json(tmp_path / "dev-v2.0.json", squad_file(squad("1", "A"), squad("2")))
    dataset = load_dataset("squad", file, subset="validation")
    assert [e.id for e in dataset.examples] == ["1"]
    assert dataset.skipped == (f"{file}, data[0].paragraphs[0].qas[1]: it has no answer",)
