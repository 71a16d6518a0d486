import dspy
import pytest

from tests.datasets.files import refusal, write_jsonl
from typedrag.core.errors import InputError
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset
from typedrag.metrics import TokenF1


def row(identifier: str, labels: list[int], **other) -> dict:
    answers = [f"answer {n}" for n in range(len(labels))]
    by_author = {
        "ground_truth": {"answer1": answers[0]},
        "gpt-4o": {f"answer{n}": text for n, text in enumerate(answers[1:], 1)},
    }
    return {
        "question_id": identifier,
        "question_text": f"why {identifier}?",
        "num_answers": len(labels),
        "answer_dict": by_author,
        "answer_list": answers,
        "answer_label": labels,
        **other,
    }


def test_references_are_best_first_with_their_authors(tmp_path):
    write_jsonl(tmp_path / "nq.jsonl", row("single_nq_dev_1", [1, 0, 3, 1]))
    [example] = load_dataset("wiki-nfqa", tmp_path).examples
    assert (example.id, example.question, example.subset) == ("single_nq_dev_1", "why single_nq_dev_1?", "nq")
    assert example.references == (
        Reference("answer 2", 3),
        Reference("answer 0", 1),
        Reference("answer 3", 1),
        Reference("answer 1", 0),
    )
    assert example.answers == ("answer 0",)
    assert example.reference_authors == ("gpt-4o", "ground_truth", "gpt-4o", "gpt-4o")
    assert list(example.inputs().keys()) == ["question"]


def test_the_authors_folders_are_read_by_subset(tmp_path):
    for subset in ("nq", "musique"):
        write_jsonl(tmp_path / subset / "annotated_odqa_nf_test.jsonl", row(f"{subset}-1", [0, 3]))
    assert [e.subset for e in load_dataset("wiki-nfqa", tmp_path).examples] == ["nq", "musique"]
    assert [e.id for e in load_dataset("wiki-nfqa", tmp_path, subset="musique").examples] == ["musique-1"]
    one = tmp_path / "musique" / "annotated_odqa_nf_test.jsonl"
    assert [e.subset for e in load_dataset("wiki-nfqa", one).examples] == ["musique"]


def test_what_has_one_label_or_repeats_is_listed(tmp_path):
    good = row("q1", [0, 3])
    file = write_jsonl(tmp_path / "nq.jsonl", good, row("q2", [3, 3]), good)
    dataset = load_dataset("wiki-nfqa", file)
    assert [e.id for e in dataset.examples] == ["q1"]
    assert dataset.skipped == (
        f"{file}, line 2: all its answers have the same label",
        f"{file}, line 3: it repeats {file}, line 1",
    )
    file = write_jsonl(tmp_path / "squad.jsonl", row("q2", [3, 3]))
    assert "holds no question of dataset 'wiki-nfqa' (first left out: " in refusal("wiki-nfqa", file)


def test_rows_that_do_not_fit_are_named(tmp_path):
    def said(**other) -> str:
        return refusal("wiki-nfqa", write_jsonl(tmp_path / "nq.jsonl", row("q1", [0, 3]), row("q2", [0, 3], **other)))

    place = f"{tmp_path}/nq.jsonl, line 2 cannot be used: "
    assert said(answer_label=[1]).startswith(f"{place}it has 2 answers and 1 labels")
    assert said(answer_label=[1, "3"]).startswith(f"{place}answer_label.1: ")
    assert said(answer_list=["a", ""]).startswith(f"{place}answer_list.1: ")
    assert said(question_text=None).startswith(f"{place}question_text: ")
    assert said(question_id="q1").startswith(f"{place}its id 'q1' is that of {tmp_path}/nq.jsonl, line 1")


def test_the_hub_has_all_subsets_in_one(hub):
    ids = {
        "single_nq_dev_1": "nq",
        "single_squad_dev_1": "squad",
        "single_trivia_dev_1": "trivia",
        "5a88658955429938390d3f47": "hotpotqa",
        "2hop__1_2": "musique",
        "8813f87c0bdd11eba7f7acde48001122": "2wikimultihopqa",
    }
    hub("oneonlee/Wiki-NFQA", "reference_answer_list", test=[row(i, [0, 3, 1]) for i in ids])
    dataset = load_dataset("wiki-nfqa")
    assert {e.id: e.subset for e in dataset.examples} == ids
    assert dataset.examples[0].reference_authors == ("gpt-4o", "gpt-4o", "ground_truth")
    assert [e.subset for e in load_dataset("wiki-nfqa", subset="musique,nq").examples] == ["nq", "musique"]


def test_the_authors_files(shared_data):
    dataset = load_dataset("wiki-nfqa", shared_data / "wiki_nfqa")
    sizes = dict.fromkeys(("nq", "squad", "trivia", "hotpotqa"), 0)
    for example in dataset.examples:
        sizes[example.subset] += 1
        labels = [r.label for r in example.references]
        assert labels == sorted(labels, reverse=True)
        assert set(labels) <= {0, 1, 2, 3}
        assert len(example.reference_authors) == len(labels)
        assert example.reference_authors.count("ground_truth") >= 1
    assert sizes == {"nq": 126, "squad": 300, "trivia": 296, "hotpotqa": 62}
    assert dataset.skipped == ()
    assert sum(len(e.answers) > 1 for e in dataset.examples) == 254
    assert not any(a.startswith("['") for e in dataset.examples for a in e.answers)
    assert [len(dataset.split(name)) for name in ("train", "validation", "test")] == [392, 196, 196]


def test_gold_answers_that_are_written_as_one_list_are_several(tmp_path):
    gold = "['Resurrection of the dead', 'Final judgment', \"Baptism's\"]"
    dictionary = {"ground_truth": {"answer1": gold, "answer2": "[Verse 1]", "answer3": "Final judgment"}}
    file = write_jsonl(tmp_path / "nq.jsonl", row("q1", [0, 3], answer_dict=dictionary))
    [made] = load_dataset("wiki-nfqa", file).examples
    assert made.answers == ("Resurrection of the dead", "Final judgment", "Baptism's", "[Verse 1]")
    assert TokenF1()(made, dspy.Prediction(answer="Resurrection of the dead")).score == 1.0


def test_rows_may_name_their_subsets_and_all_their_answers(tmp_path):
    rows = [row("q1", [0, 3], subset="mine", answers=["gold", "or this"]), row("q2", [0, 3], subset="nq")]
    file = write_jsonl(tmp_path / "made.jsonl", *rows)
    dataset = load_dataset("wiki-nfqa", file)
    assert [(e.id, e.subset, e.answers) for e in dataset.examples] == [
        ("q1", "mine", ("gold", "or this")),
        ("q2", "nq", ("answer 0",)),
    ]
    assert [e.id for e in load_dataset("wiki-nfqa", file, subset="nq").examples] == ["q2"]
    with pytest.raises(InputError, match=r"no subset is called 'squad'\. Subsets: mine, nq"):
        load_dataset("wiki-nfqa", file, subset="squad")
    some = write_jsonl(tmp_path / "some.jsonl", rows[0], row("q2", [0, 3]))
    assert "does not say by its name which subset it is" in refusal("wiki-nfqa", some)
