import json
from collections import Counter
from random import Random

import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.preqrag import CHOICES, PreQRAGQuestions, draw_categories
from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope, QuestionType
from typedrag.datasets import load_dataset
from typedrag.files.text_files import write_json_lines
from typedrag.runs.work import Stages


def given(prompt: str, field: str):
    """The value of an input field."""
    return json.JSONDecoder().raw_decode(prompt.split(f"[[ ## {field} ## ]]\n")[1])[0]


def asked(question: str, answer: str) -> dict:
    return {"asked": {"question": question, "answer": answer}}


def written(prompt: str) -> dict:
    """A question of the length that is wanted, on the last words of its passages, and an answer in their words."""
    several = "[[ ## passages ## ]]" in prompt
    passages = given(prompt, "passages") if several else [given(prompt, "passage")]
    short = any("fewer than" in r for r in given(prompt, "requirements"))
    words = " ".join(p["text"].split()[-1].strip(".") for p in passages)
    title = passages[0]["title"].split(":")[0]
    question = f"Why {title} {words}?" if short else f"Could you tell me all about {title} and {words}?"
    return asked(question, " ".join(p["text"] for p in passages))


REPLIES = {s.AskOfOnePassage: written, s.AskOfTwoPassages: written}
SETTINGS = PreQRAGQuestions(single=8, multi=6, retries=0)


def build(retriever, settings=SETTINGS, replies=REPLIES, stages=None):
    with scripted(replies) as engine:
        return settings.write(retriever.passages(), retriever, stages or Stages(1)), engine


def test_as_many_of_each_scope_as_are_wanted_with_their_kinds(sample_retriever, tmp_path):
    done = []
    built, _ = build(sample_retriever, stages=Stages(listener=lambda p: done.append(p.done)))
    by_id = {p.id: p for p in sample_retriever.passages()}
    assert Counter(row["subset"] for row in built.rows) == {"single-document": 8, "multi-document": 6}
    assert done[-1] == 14
    for row in built.rows:
        multi = row["subset"] == "multi-document"
        assert len(row["passage_ids"]) == 1 + multi
        assert set(row["categories"]) == set(CHOICES)
        assert row["categories"]["answer"] in (("multi-aspect", "comparison") if multi else ("factoid", "non-factoid"))
        assert (len(row["question"].split()) < 7) == (row["categories"]["length"] == "short")
        titles = {by_id[i].title for i in row["passage_ids"]}
        assert len(titles) == len(row["passage_ids"])
    twice = Counter(i for row in built.rows if row["subset"] == "multi-document" for i in row["passage_ids"])
    assert max(twice.values()) == 1
    assert len({c for row in built.rows for c in row["categories"].values()}) > 9
    write_json_lines(tmp_path / "made.jsonl", built.rows)
    dataset = load_dataset("file", tmp_path / "made.jsonl")
    assert len(dataset.examples) == 14
    for example, row in zip(dataset.examples, built.rows, strict=True):
        assert (example.subset, example.passage_ids) == (row["subset"], tuple(row["passage_ids"]))
        assert example.references[0].text == row["references"][0]["text"]
        expected = {"factoid": QuestionType.FACTOID, "comparison": QuestionType.COMPARISON}
        assert example.get("question_type") == expected.get(row["categories"]["answer"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("torn", "no reply could be read"),
        (asked("What does this excerpt say about all these many things?", "x"), "it speaks of"),
        (asked("What is there to be said about all of it?", "Nothing."), "uses nothing of"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_its_reason_and_another_tried(sample_retriever, reply, reason):
    settings = PreQRAGQuestions(single=2, multi=1, attempts=2, retries=0, only={"length": ("long",)})
    built, engine = build(sample_retriever, settings, replies=dict.fromkeys(REPLIES, reply))
    assert not built.rows and len(engine.asked()) == 6
    found = {left.split(": ")[0]: n for left, n in built.left_out.items() if reason in left}
    assert found == {"single-document": 4, "multi-document": 2}
    assert built.left_out["single-document: too few passages or usable questions"] == 2


def test_a_question_of_another_length_or_that_repeats_one_is_left_out(sample_retriever):
    def same(prompt):
        return asked("Could you tell me all about bread and about cats?", written(prompt)["asked"]["answer"])

    only = {"length": ("long",), "premise": ("direct",)}
    settings = PreQRAGQuestions(single=3, multi=0, attempts=1, retries=0, only=only)
    built, _ = build(sample_retriever, settings, replies={s.AskOfOnePassage: same})
    assert len(built.rows) == 1 and built.left_out["single-document: it repeats another"] == 2
    settings = settings.model_copy(update={"only": {**only, "length": ("short",)}})
    built, _ = build(sample_retriever, settings, replies={s.AskOfOnePassage: same})
    assert built.left_out["single-document: it is not short"] == 3


def test_categories_are_drawn_evenly_and_short_questions_have_no_premise():
    drawn = [draw_categories(DocumentScope.SINGLE, Random(n), {}) for n in range(600)]
    for choice in ("answer", "premise", "turn", "formulation", "expertise"):
        counts = Counter(d[choice].name for d in drawn)
        assert len(counts) == 2 and min(counts.values()) > 250
    assert not any(d["length"].name == "short" and d["premise"].name == "with-premise" for d in drawn)
    assert {draw_categories(DocumentScope.MULTI, Random(n), {})["length"].name for n in range(50)} == {"long"}


@pytest.mark.parametrize(
    ("only", "problem"),
    [
        ({"mood": ("glad",)}, "questions have no 'mood'. Choices: answer"),
        ({"turn": ("third",)}, "'third' is no category of 'turn'"),
        ({"answer": ("comparison",)}, "no single-document question has the wanted 'answer'"),
    ],
)
def test_categories_that_there_are_not_are_refused(sample_retriever, only, problem):
    with pytest.raises(InputError, match=problem):
        build(sample_retriever, PreQRAGQuestions(single=1, multi=0, only=only))


def test_what_only_one_scope_can_be_is_refused_before_anything_is_written(sample_retriever):
    only = {"length": ("short",)}
    with scripted() as engine, pytest.raises(InputError, match="no multi-document question has the wanted 'length'"):
        build(sample_retriever, PreQRAGQuestions(single=1, multi=1, only=only))
    assert not engine.asked()
