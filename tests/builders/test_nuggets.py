import dspy
import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.nuggets import Nuggets, merge_nuggets
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset, with_nuggets
from typedrag.datasets.dataset import make_id
from typedrag.experiments import read_config
from typedrag.experiments.resources import Resources
from typedrag.files.text_files import write_json_lines
from typedrag.lms import models
from typedrag.lms.lm import open_lm, use_lm
from typedrag.runs.work import Stages
from typedrag.signatures.fields import WrittenNugget

QUESTION = "Why does bread rise?"


@pytest.fixture(scope="module", autouse=True)
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")


def nugget(text: str, importance: str = "vital") -> dict[str, str]:
    return {"text": text, "importance": importance}


def question(*texts: str, id: str = "q1", answers: tuple[str, ...] = ()) -> dspy.Example:
    references = (*(Reference(text, 3) for text in texts), Reference("No idea.", 0))
    return dspy.Example(id=id, question=QUESTION, references=references, answers=answers, subset="bread")


def built(reply, *questions: dspy.Example, **options):
    with scripted({s.ListNuggets: reply}) as engine:
        return Nuggets(retries=0, **options).list_nuggets(questions, Stages()), engine


def test_each_good_text_is_read_in_one_call_and_the_file_is_read_as_a_dataset(tmp_path):
    says = {
        "Yeast eats sugar.": [nugget("Yeast eats the sugar in the dough.")],
        "Gas lifts it.": [nugget("Carbon dioxide lifts the dough."), nugget("Bubbles are left in it.", "okay")],
        "yeast": [nugget("The dough's sugar is eaten by yeast.", "okay")],
    }

    def reply(prompt):
        passage = prompt.split("[[ ## passage ## ]]\n")[1].split("\n")[0]
        return {"nuggets": says[passage]}

    made, engine = built(reply, question("Yeast eats sugar.", "Gas lifts it.", answers=("yeast",)))
    assert engine.asked() == ["ListNuggets"] * 3
    [row] = made.rows
    assert (row["id"], row["question"], row["subset"]) == ("q1", QUESTION, "bread")
    assert [(n["text"], n["vital"], len(n["wordings"])) for n in row["nuggets"]] == [
        ("Yeast eats the sugar in the dough.", True, 2),
        ("Carbon dioxide lifts the dough.", True, 1),
        ("Bubbles are left in it.", False, 1),
    ]
    assert row["nuggets"][0]["wordings"] == {
        make_id("Yeast eats sugar."): "Yeast eats the sugar in the dough.",
        make_id("yeast"): "The dough's sugar is eaten by yeast.",
    }
    assert Nuggets().counts(made) == {"False": 1, "True": 2}
    write_json_lines(tmp_path / "nuggets.jsonl", made.rows)
    [loaded] = load_dataset("file", tmp_path / "nuggets.jsonl").examples
    assert [n.text for n in loaded.nuggets] == [n["text"] for n in row["nuggets"]]
    other = load_dataset("sample")
    assert with_nuggets(other, tmp_path / "nuggets.jsonl").examples[0].nuggets == ()


def test_the_passages_that_people_labelled_good_are_read_and_no_more_than_wanted():
    passages = [f"Passage {n}." for n in range(5)]
    labelled = question("A reference.").copy(passage_texts=tuple(passages))
    _, engine = built({"nuggets": [nugget("Yeast makes gas.")]}, labelled, texts=2)
    assert {text for _, prompt in engine.prompts for text in passages if text in prompt} == set(passages[:2])


def test_questions_without_good_texts_or_nuggets_and_texts_without_a_reply_are_counted():
    bare = dspy.Example(id="q0", question=QUESTION)
    made, _ = built({"nuggets": []}, bare, question("Nothing of it."))
    assert made.rows == []
    assert +made.left_out == {
        "questions: no good passage, reference or gold answer": 1,
        "questions: no nugget was found": 1,
    }
    made, _ = built("no JSON", question("Unreadable."))
    assert +made.left_out == {"texts: no reply could be read": 1}


@pytest.mark.parametrize(
    ("statements", "merged"),
    [
        (["Yeast gives off carbon dioxide.", "Carbon dioxide is given off by yeast."], 1),
        (["Bake it for 20 minutes.", "Bake it for 40 minutes."], 2),
        (["Yeast gives off carbon dioxide.", "Yeast does not give off carbon dioxide."], 2),
        (["Yeast gives off carbon dioxide.", "Salt slows the yeast down."], 2),
    ],
)
def test_nuggets_are_merged_by_meaning_but_not_over_numbers_and_negations(statements, merged):
    written = [(f"t{n}", WrittenNugget(text=text, importance="vital")) for n, text in enumerate(statements)]
    assert len(merge_nuggets(QUESTION, written, alike=0.75)) == merged


@pytest.mark.parametrize(("importances", "vital"), [("vo", True), ("voo", False), ("o", False), ("vvo", True)])
def test_a_nugget_is_vital_if_half_of_the_texts_hold_it_so(importances, vital):
    named = {"v": "vital", "o": "okay"}
    written = [(str(n), WrittenNugget(text="Yeast makes gas.", importance=named[i])) for n, i in enumerate(importances)]
    [one] = merge_nuggets(QUESTION, written, alike=0.75)
    assert one.vital is vital and len(one.wordings) == len(importances)


@pytest.mark.qwen
def test_a_small_lm_lists_short_nuggets_of_two_questions():
    models.fetch("qwen2.5-coder-1.5b")
    texts = {
        "Why does bread rise?": "Yeast feeds on sugar in the dough. It gives off carbon dioxide, and the gas is caught "
        "in the dough, which swells. In a warm kitchen this is faster.",
        "Why do leaves turn red in autumn?": "When days get shorter, trees stop making chlorophyll, which is green. "
        "Other dyes then show. The red one, anthocyanin, is made in autumn from sugar left in the leaf.",
    }
    asked = [dspy.Example(id=q, question=q, references=(Reference(text, 1),)) for q, text in texts.items()]
    with use_lm(open_lm("embedded:qwen2.5-coder-1.5b", max_tokens=300)):
        made = Nuggets().list_nuggets(asked, Stages(threads=1))
    assert [row["question"] for row in made.rows] == list(texts)
    assert all(2 <= len(row["nuggets"]) <= 8 for row in made.rows)
    assert all(len(n["text"].split()) < 25 for row in made.rows for n in row["nuggets"])


def test_the_questions_are_those_that_an_evaluation_with_the_same_limit_asks(tmp_path):
    """Also where no type is labelled, and both balance the types that a classifier gives."""
    asked = ["Why is the sky blue?", "How do I bake bread?", "Which is better, tea or coffee?", "Is it right to lie?"]
    rows = [{"id": f"{n}{text}", "question": f"{text[:-1]} {n}?"} for n in range(9) for text in asked]
    write_json_lines(path := tmp_path / "questions.jsonl", rows)
    dataset = {"name": "file", "path": path, "limit": 8}
    config = read_config(None, {"programs": [{"program": "direct_lm"}], "dataset": dataset, "metrics": ["defects"]})
    evaluated = Resources(config, tmp_path / "replies").examples
    drawn = Nuggets(dataset="file", path=path, limit=8).draw()
    assert [e.id for e in drawn] == [e.id for e in evaluated]
