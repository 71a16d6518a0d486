import json
import re
from collections import Counter

import dspy
import pytest

from tests.scripted import ScriptedEngine
from tests.scripted import signatures as s
from typedrag.builders.wiki_nfqa import ReferenceLMs, WikiNFQA
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import example
from typedrag.lms import lm as lms_module
from typedrag.lms.adapter import SchemaAdapter
from typedrag.runs.work import Stages

SETTINGS = WikiNFQA(questions=("mine",), retries=0)
QUESTIONS = [
    example(
        id=f"nq_{n}",
        question=f"Why is thing {n} odd?",
        subset="nq",
        answers=(f"truth {n}", f"alias {n}"),
        question_type=QuestionType.REASON,
    )
    for n in range(4)
]
WORDS = {"truth": 2, "superb": 3, "fair": 2, "poor": 1, "absurd": 0}


@pytest.fixture(autouse=True)
def _schema(monkeypatch):
    monkeypatch.setattr(lms_module, "choose_adapter", lambda _: SchemaAdapter())


def thing(prompt: str) -> str:
    return re.findall(r"thing (\d+)", prompt)[-1]


def labels(prompt: str) -> dict:
    """Each answer's label, by its first word."""
    answers = json.JSONDecoder().raw_decode(prompt.split("[[ ## answers ## ]]\n")[-1])[0]
    return {"grades": {key: WORDS[re.findall(r"\w+", text)[0]] for key, text in answers.items()}}


def rewrite(prompt: str) -> dict:
    return {"answer": f"superb {thing(prompt)}"}


def worse(*answers: str) -> dict:
    return {"answers": dict(zip(("acceptable", "poor", "senseless"), answers, strict=True))}


class Writer:
    """An LM that signs what it writes, and numbers what it is asked for again."""

    def __init__(self, name: str, replies: dict | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.name = name
        scripts = {s.WriteWorseAnswers: self.write, s.RewriteAnswer: rewrite, s.LabelAnswers: labels}
        self.engine = ScriptedEngine({**scripts, **(replies or {})})
        self.lm = dspy.LM(f"scripted/{name}", engine=self.engine, num_retries=0, cache=True)

    def write(self, prompt: str) -> dict:
        self.asked[thing(prompt)] += 1
        by = f"{thing(prompt)} by {self.name}, draw {self.asked[thing(prompt)]}"
        return worse(f"fair {by}", f"poor {by}", f"absurd {by}")


def panel(annotator: dict | None = None, superior: dict | None = None, writers: dict | None = None):
    three = [Writer(name, (writers or {}).get(name)) for name in ("ada", "bob", "cyd")]
    best, judge = Writer("sue", superior), Writer("ann", annotator)
    return ReferenceLMs(tuple(w.lm for w in three), best.lm, judge.lm), [*three, best, judge]


def build(lms, questions=QUESTIONS, settings=SETTINGS, stages=None):
    return settings.write_references(questions, lms, stages or Stages(1))


def test_nine_references_a_superior_one_and_the_ground_truth_are_labelled():
    lms, everyone = panel()
    done = []
    built = build(lms, stages=Stages(listener=lambda p: done.append((p.run, p.done))))
    assert len(built.rows) == 4 and not built.left_out and done[-1] == ("labelled questions", 4)
    row = built.rows[1]
    assert (row["question_id"], row["question_text"], row["subset"]) == ("nq_1", "Why is thing 1 odd?", "nq")
    assert list(row["answer_dict"]) == ["ground_truth", "sue", "ada", "bob", "cyd"]
    assert [len(texts) for texts in row["answer_dict"].values()] == [1, 1, 3, 3, 3]
    assert row["answer_list"] == [text for texts in row["answer_dict"].values() for text in texts.values()]
    assert row["answer_list"][:3] == ["['truth 1', 'alias 1']", "superb 1", "fair 1 by ada, draw 1"]
    assert row["answer_label"] == [2, 3, *[2, 1, 0] * 3] and row["num_answers"] == 11
    assert [len(each.engine.prompts) for each in everyone] == [4] * 5
    first = everyone[0].engine.prompts[0][1]  # the list is one unit, also to those that write
    assert any(f"['truth {n}', 'alias {n}']" in first for n in range(4))


def test_lms_write_and_label_at_the_papers_temperatures():
    seen = []

    class Listening(ScriptedEngine):
        def complete(self, request):
            seen.append((request.config.temperature, request.config.top_p, request.config.max_tokens))
            return super().complete(request)

    engine = Listening({s.WriteWorseAnswers: Writer("w").write, s.RewriteAnswer: rewrite, s.LabelAnswers: labels})
    lm = dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False, temperature=0.0)
    build(ReferenceLMs((lm,), lm, lm), questions=QUESTIONS[:1])
    other = {"temperature": 0.5, "annotation_temperature": 0.2, "top_p": 0.9, "max_tokens": 99}
    build(ReferenceLMs((lm,), lm, lm), questions=QUESTIONS[:1], settings=SETTINGS.model_copy(update=other))
    papers, ours = [(0.8, 0.95, 512)] * 2 + [(0.1, 0.95, 512)], [(0.5, 0.9, 99)] * 2 + [(0.2, 0.9, 99)]
    assert seen == papers + ours


def test_the_annotator_sees_answers_in_an_order_drawn_by_hash():
    orders = set()

    def listen(prompt):
        answers = json.JSONDecoder().raw_decode(prompt.split("[[ ## answers ## ]]\n")[-1])[0]
        orders.add(tuple(text.split()[0] for text in answers.values()))
        return labels(prompt)

    first = build(panel({s.LabelAnswers: listen})[0])
    assert len(orders) > 2 and all(row["answer_label"] == [2, 3, *[2, 1, 0] * 3] for row in first.rows)
    before = set(orders)
    build(panel({s.LabelAnswers: listen})[0], settings=SETTINGS.model_copy(update={"seed": 1}))
    assert orders > before


def test_references_that_are_missing_are_counted_and_the_question_stays():
    lms, _ = panel(
        superior={s.RewriteAnswer: "torn"},
        writers={
            "ada": {s.WriteWorseAnswers: "torn"},
            "bob": {s.WriteWorseAnswers: worse(" ", "poor one", "absurd")},
            "cyd": {s.WriteWorseAnswers: worse("fair", "Poor  one", "absurd")},
        },
    )
    built = build(lms, questions=QUESTIONS[:1])
    assert built.left_out == {
        "references: no reply could be read": 4,
        "references: blank": 1,
        "references: it repeats another": 2,
    }
    [row] = built.rows
    assert row["answer_list"] == ["['truth 0', 'alias 0']", "poor one", "absurd", "fair"]
    assert row["answer_dict"]["ada"] == {} and row["answer_dict"]["cyd"] == {"answer1": "fair"}


def test_references_that_repeat_others_are_kept_as_in_the_authors_data():
    same = {s.WriteWorseAnswers: worse("fair", "poor", "absurd")}
    lms, _ = panel(writers=dict.fromkeys(("ada", "bob", "cyd"), same))
    [row] = build(lms, questions=QUESTIONS[:1], settings=SETTINGS.model_copy(update={"repeats": True})).rows
    assert row["num_answers"] == 11 and row["answer_list"].count("fair") == 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("torn", "their answers could not be labelled"),
        ({"grades": {f"a{n}": 2 for n in range(1, 12)}}, "all their answers have the same label"),
        ({"grades": {f"a{n}": 2 for n in range(1, 11)}}, "their answers could not be labelled"),
        ({"grades": {f"a{n}": 4 for n in range(1, 12)}}, "their answers could not be labelled"),
    ],
)
def test_a_question_whose_answers_have_no_order_is_left_out(reply, reason):
    built = build(panel({s.LabelAnswers: reply})[0])
    assert built.rows == [] and built.left_out == {f"questions: {reason}": 4}


def test_somebody_must_write():
    only = Writer("ada").lm
    with pytest.raises(InputError, match="no LM is to write"):
        build(ReferenceLMs((), only, only))
