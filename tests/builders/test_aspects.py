"""Long answers, divided by an LM (RichRAG, appendix A)."""

import json

import dspy
import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.aspects import Aspects
from typedrag.core.errors import InputError
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset
from typedrag.files.text_files import write_json_lines
from typedrag.runs.work import Stages

SENTENCES = ("Yeast makes gas.", "The gas lifts the dough.", "Salt slows it down.", "Heat ends it.")


def example(number: int = 1, answer: str = " ".join(SENTENCES)) -> dspy.Example:
    question = f"How does bread rise, number {number}?"
    references = (Reference(answer, 1),)
    return dspy.Example(
        id=f"test-{number}", question=question, subset="test", references=references, passage_ids=("9_1",)
    )


def parts(*named: tuple[str, int]) -> dict:
    return {"parts": [{"sub_aspect": aspect, "begins": begins} for aspect, begins in named]}


def build(reply, *examples, demonstrations=()):
    with scripted({s.DivideAnswer: reply}) as engine:
        return Aspects(retries=0).divide(examples, Stages(), demonstrations), engine


def test_sub_answers_are_runs_of_sentences_that_make_the_whole_answer(tmp_path):
    built, engine = build(parts(("what  lifts it", 1), ("what slows it", 3)), example())
    [row] = built.rows
    assert row["aspects"] == ["what lifts it", "what slows it"]
    assert row["sub_answers"] == [" ".join(SENTENCES[:2]), " ".join(SENTENCES[2:])]
    [(_, prompt)] = engine.prompts
    shown = json.JSONDecoder().raw_decode(prompt.split("[[ ## sentences ## ]]\n")[1])[0]
    assert shown == {str(n): text for n, text in enumerate(SENTENCES, 1)}
    write_json_lines(tmp_path / "made.jsonl", built.rows)
    dataset = load_dataset("file", tmp_path / "made.jsonl")
    [loaded] = dataset.examples
    assert (loaded.aspects, loaded.sub_answers) == (tuple(row["aspects"]), tuple(row["sub_answers"]))
    assert (loaded.id, loaded.passage_ids, loaded.references) == ("test-1", ("9_1",), example().references)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (parts(("a", 2), ("b", 3)), "the parts do not follow the order of the answer"),
        (parts(("a", 1), ("b", 1)), "the parts do not follow the order of the answer"),
        (parts(("a", 1), ("b", 4), ("c", 3)), "the parts do not follow the order of the answer"),
        (parts(("a", 1), ("b", 5)), "the parts do not follow the order of the answer"),
        (parts(("costs", 1), ("Costs", 2)), "two sub-aspects are the same"),
        (parts(("a", 1)), "no reply could be read"),
        ("torn", "no reply could be read"),
    ],
)
def test_what_is_no_division_is_left_out_with_its_reason(reply, reason):
    built, _ = build(reply, example())
    assert (built.rows, dict(built.left_out)) == ([], {reason: 1})


def test_an_answer_of_one_sentence_is_not_asked_about():
    built, engine = build(parts(("a", 1), ("b", 2)), example(1, "Yeast makes gas."), example(2))
    assert [row["id"] for row in built.rows] == ["test-2"]
    assert dict(built.left_out) == {"the answer has a single sentence": 1}
    assert len(engine.prompts) == 1
    with pytest.raises(InputError, match="no question has a long answer"):
        build(parts(("a", 1), ("b", 2)), dspy.Example(id="1", question="Why?"))


def test_demonstrations_of_ones_own_are_shown_instead_of_ours():
    shown = dspy.Example(
        question="Why is the sky blue?",
        aspects=("what air does", "what eyes do"),
        sub_answers=("Air scatters light. Blue most.", "Eyes see it."),
    )
    _, engine = build(parts(("a", 1), ("b", 2)), example(), demonstrations=[shown])
    text = "".join(message.text for message in engine.messages[0])
    assert '"begins": 3' in text and "what eyes do" in text and "keeping bees" not in text
    with pytest.raises(InputError, match="shows no division of an answer"):
        build(parts(), example(), demonstrations=[shown.copy(aspects=("one",))])
