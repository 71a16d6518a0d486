from __future__ import annotations

import contextvars
import threading

import dspy
import pytest

from tests.scripted import scripted
from typedrag.errors import CallFailed
from typedrag.lms.asking import ask
from typedrag.runs.failures import FailureTracker
from typedrag.runs.work import run_each
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

    assert run_each(work, [0, 1, 2], 3, done.append) == [(n, "here") for n in range(3)]
    assert done == [1, 2, 3]


def test_another_error_ends_the_work_soon():
    tried = []

    def work(number):
        tried.append(number)
        raise OSError(f"no {number}")

    with pytest.raises(OSError, match="no 0"):
        run_each(work, list(range(100)), 1)
    assert tried == [0]


def test_what_the_lm_fails_at_is_the_failure_of_that_item_alone():
    with refuses("b?"):
        first, failure, last = run_each(grade, ["a?", "b?", "c?"], 1)
    assert (first, last) == (2, 2) and isinstance(failure, CallFailed) and "not that" in failure.problem


@pytest.mark.parametrize(("items", "asked"), [(3, 3), (50, 5)])
def test_an_lm_that_fails_at_everything_ends_it_with_its_words(items, asked):
    with refuses() as engine, pytest.raises(CallFailed, match="not that"):
        run_each(grade, [f"{n}?" for n in range(items)], 1)
    assert len(engine.prompts) == asked


def test_several_calls_are_judged_together():
    failures = FailureTracker()
    with refuses("b?", "c?") as engine:
        assert run_each(grade, ["a?"], 1, failures=failures) == [2]
        for _ in range(5):
            assert isinstance(run_each(grade, ["b?"], 1, failures=failures)[0], CallFailed)
        with pytest.raises(CallFailed, match="not that"):
            run_each(grade, ["c?"], 1, failures=failures)
    assert len(engine.prompts) == 6
