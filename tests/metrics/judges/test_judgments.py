from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.errors import InputError
from typedrag.lms.lm import use_lm
from typedrag.metrics import Judgments
from typedrag.metrics.judges.linkage import LinkageJudge, stored_rank
from typedrag.metrics.judges.pairwise import PairwiseJudge, compare_in_both_orders
from typedrag.metrics.stored import stored_types
from typedrag.signatures import TypeSubQuestions
from typedrag.sub_questions.decomposition import SubQuestionTyper


class Judge(dspy.Module):
    def __init__(self, signature: str = "answer -> grade: int") -> None:
        super().__init__()
        self.grade = dspy.Predict(signature)


class OtherJudge(Judge):
    pass


def lm(model: str = "scripted/one", **settings) -> dspy.LM:
    return dspy.LM(model, **{"api_base": "http://localhost:1", **settings})


class Maker:
    def __init__(self, judgment: object = 1) -> None:
        self.judgment = judgment
        self.made = 0

    def __call__(self) -> dict:
        self.made += 1
        return {"grade": self.judgment}


def is_found(judgments: Judgments, judge: dspy.Module, inputs: dict, lm: dspy.LM) -> bool:
    make = Maker()
    with dspy.context(lm=lm):
        judgments.get_or_make(judge, inputs, make)
    return make.made == 0


@pytest.fixture
def judgments():
    """Holds one judgment: of `Judge()` on {"answer": "a"} by `lm()`."""
    judgments = Judgments()
    assert not is_found(judgments, Judge(), {"answer": "a"}, lm())
    return judgments


def test_what_was_judged_is_found_by_another_instance_of_the_judge(judgments):
    assert is_found(judgments, Judge(), {"answer": "a"}, lm())


def test_the_key_and_the_timeout_of_the_lm_make_no_difference(judgments):
    assert is_found(judgments, Judge(), {"answer": "a"}, lm(api_key="k", timeout=3))


def test_an_lm_at_another_address_is_another_one(judgments):
    assert not is_found(judgments, Judge(), {"answer": "a"}, lm(api_base="http://localhost:2"))


@pytest.mark.parametrize(
    ("judge", "inputs", "model", "settings"),
    [
        (Judge(), {"answer": "b"}, "scripted/one", {}),
        (Judge(), {"answer": "a", "draw": 0}, "scripted/one", {}),
        (OtherJudge(), {"answer": "a"}, "scripted/one", {}),
        (Judge("answer -> grade: float"), {"answer": "a"}, "scripted/one", {}),
        (Judge("reply -> grade: int"), {"answer": "a"}, "scripted/one", {}),
        (Judge(), {"answer": "a"}, "scripted/two", {}),
        (Judge(), {"answer": "a"}, "scripted/one", {"temperature": 0.5}),
    ],
)
def test_all_that_a_judgment_depends_on_makes_another_judgment(judgments, judge, inputs, model, settings):
    assert not is_found(judgments, judge, inputs, lm(model, **settings))


def test_compiled_judges_make_judgments_of_their_own(judgments):
    with_demos, with_instructions = Judge(), Judge()
    with_demos.grade.demos = [dspy.Example(answer="x", grade=1)]
    with_instructions.grade.signature = with_instructions.grade.signature.with_instructions("Be strict.")
    assert not is_found(judgments, with_demos, {"answer": "a"}, lm())
    assert not is_found(judgments, with_instructions, {"answer": "a"}, lm())
    assert is_found(judgments, with_demos, {"answer": "a"}, lm())


def test_the_order_of_inputs_makes_no_difference():
    judgments = Judgments()
    is_found(judgments, Judge(), {"a": 1, "b": 2}, lm())
    assert is_found(judgments, Judge(), {"b": 2, "a": 1}, lm())


def test_a_judgment_that_fails_is_not_stored():
    judgments = Judgments()

    def fail() -> dict:
        raise ValueError("unreadable")

    for _ in range(2):  # nor does it leave a lock behind
        with pytest.raises(ValueError, match="unreadable"):
            judgments.get_or_make(Judge(), {}, fail)
    assert len(judgments) == 0
    assert judgments.get_or_make(Judge(), {}, Maker(7)) == {"grade": 7}


@pytest.mark.parametrize("path", ["file", None])
def test_threads_that_ask_for_the_same_judgment_make_it_once(tmp_path, path):
    judgments = Judgments(tmp_path / "judgments.db" if path else None)
    made = []

    def make() -> dict:
        made.append(threading.get_ident())
        time.sleep(0.05)
        return {"grade": 1}

    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(judgments.get_or_make, Judge(), {"answer": i % 3}, make) for i in range(48)]
    assert {f.result()["grade"] for f in asked} == {1}
    assert len(made) == 3 == len(judgments)


def test_threads_whose_first_maker_fails_make_it_themselves():
    judgments = Judgments()
    attempts = iter([ValueError("unreadable"), None, ValueError("made twice")])

    def make() -> dict:
        time.sleep(0.02)
        if error := next(attempts):
            raise error
        return {"grade": 1}

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(judgments.get_or_make, Judge(), {}, make) for _ in range(3)]
    assert sorted(type(f.exception()).__name__ for f in asked) == ["NoneType", "NoneType", "ValueError"]


def test_different_judgments_are_made_at_the_same_time():
    judgments = Judgments()
    together = threading.Barrier(4, timeout=10)

    def make() -> dict:
        together.wait()
        return {}

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(judgments.get_or_make, Judge(), {"i": i}, make) for i in range(4)]:
            future.result()


def test_what_one_process_judged_another_finds_even_if_it_was_killed(tmp_path):
    path = tmp_path / "deep" / "judgments.db"
    code = (
        "import os, sys, dspy; from pathlib import Path; from typedrag.metrics import Judgments\n"
        "from tests.metrics.judges.test_judgments import Judge\n"
        "Judgments(Path(sys.argv[1])).get_or_make(Judge(), {'answer': 'ä'}, lambda: {'grade': 'ü'}); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == 9
    make = Maker()
    with dspy.context(lm=None):
        assert Judgments(path).get_or_make(Judge(), {"answer": "ä"}, make) == {"grade": "ü"}
    assert make.made == 0


def test_a_file_that_is_something_else_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("These are notes, and no database at all. " * 100)
    with pytest.raises(InputError, match=r"notes\.txt"):
        Judgments(path)


def test_what_a_judge_is_asked_in_another_way_is_another_judgment():
    """How many sub-questions are typed together, and whether probabilities are asked for, is part of the key."""

    def core(prompt: str) -> dict:
        asked = json.loads(prompt.partition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
        return {"types": dict.fromkeys(asked, "core")}

    lm, engine = scripted_judge({TypeSubQuestions: core})
    judgments, asked = Judgments(), ["Why a?", "Why b?"]
    with use_lm(lm):
        stored_types(SubQuestionTyper(), judgments, "Why?", asked)
        stored_types(SubQuestionTyper(), judgments, "Why?", asked)
        assert (len(judgments), len(engine.prompts)) == (1, 1)
        stored_types(SubQuestionTyper(sub_questions_per_call=2), judgments, "Why?", asked)
        assert (len(judgments), len(engine.prompts)) == (2, 2)


@pytest.mark.parametrize("judge", [LinkageJudge, PairwiseJudge])
def test_a_judgment_without_probabilities_is_none_for_who_asks_for_them(judge, monkeypatch):
    judgments = Judgments()
    said = dspy.Prediction(rank=1, verdict="tie", probabilities=None)
    monkeypatch.setattr(judge, "forward", lambda self, **inputs: said)
    with use_lm(dspy.LM("openai/none")):
        for asks in (False, True):
            if judge is LinkageJudge:
                stored_rank(judge(token_probabilities=asks), judgments, "Why?", ["a"], "b")
            else:
                compare_in_both_orders(judge(token_probabilities=asks), judgments, "Why?", "a", "b")
    assert len(judgments) == (2 if judge is LinkageJudge else 4)
