from __future__ import annotations

import contextvars
import threading

import dspy
import pytest

from tests.scripted import scripted
from typedrag.errors import CallFailed
from typedrag.lms.asking import ask
from typedrag.lms.asking_each import ask_each
from typedrag.lms.faults import Faults
from typedrag.signatures import GradeRelevance

VARIABLE = contextvars.ContextVar("variable", default="unset")


def grade(question: str) -> int:
    return ask("grade", dspy.Predict(GradeRelevance), retries=0, question=question, answer="Yes.").prediction.grade


def refuses(*questions: str):
    """Replies of a server that refuses to be asked these, as one behind a filter does; all if none is named."""

    def reply(prompt: str):
        refused = not questions or any(question in prompt for question in questions)
        return dspy.utils.exceptions.LMInvalidRequestError("not that") if refused else {"grade": 2}

    return scripted({GradeRelevance: reply})


def test_results_come_in_the_order_of_the_items_from_threads_that_carry_the_context():
    VARIABLE.set("here")
    barrier = threading.Barrier(3)
    done: list[int] = []

    def work(number):
        barrier.wait(timeout=10)  # only passed if three are under way at once
        return number, VARIABLE.get()

    assert ask_each(work, [0, 1, 2], 3, done.append) == [(n, "here") for n in range(3)]
    assert done == [1, 2, 3]


def test_another_error_ends_the_work_soon():
    tried = []

    def work(number):
        tried.append(number)
        raise OSError(f"no {number}")

    with pytest.raises(OSError, match="no 0"):
        ask_each(work, list(range(100)), 1)
    assert tried == [0]


def test_what_the_lm_fails_at_is_the_failure_of_that_item_alone():
    with refuses("b?"):
        first, failure, last = ask_each(grade, ["a?", "b?", "c?"], 1)
    assert (first, last) == (2, 2) and isinstance(failure, CallFailed) and "not that" in failure.problem


@pytest.mark.parametrize(("items", "asked"), [(3, 3), (50, 5)])
def test_an_lm_that_fails_at_everything_ends_it_with_its_words(items, asked):
    with refuses() as engine, pytest.raises(CallFailed, match="not that"):
        ask_each(grade, [f"{n}?" for n in range(items)], 1)
    assert len(engine.prompts) == asked


def test_what_was_kept_does_not_speak_for_the_lm():
    with refuses(), pytest.raises(CallFailed, match="not that"):
        ask_each(lambda question: grade(question) if question == "b?" else 2, ["a?", "b?", "c?"], 1)


def test_several_calls_are_judged_together():
    faults = Faults()
    with refuses("b?", "c?") as engine:
        assert ask_each(grade, ["a?"], 1, faults=faults) == [2]
        for _ in range(5):
            assert isinstance(ask_each(grade, ["b?"], 1, faults=faults)[0], CallFailed)
        with pytest.raises(CallFailed, match="not that"):
            ask_each(grade, ["c?"], 1, faults=faults)
    assert len(engine.prompts) == 6
