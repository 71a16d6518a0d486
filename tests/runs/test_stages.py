import contextvars
import threading

import dspy
import pytest

from tests.scripted import scripted
from typedrag.core.errors import CallFailed, TypedRAGError
from typedrag.lms.asking import ask
from typedrag.lms.cost import track_calls
from typedrag.runs import Limits
from typedrag.runs.work import Stages
from typedrag.signatures.judging import GradeRelevance

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
        barrier.wait(timeout=60)  # only passed if three are under way at once
        return number, VARIABLE.get()

    stages = Stages(3, listener=lambda progress: done.append(progress.done))
    assert stages.run("numbers", work, [0, 1, 2]) == [(n, "here") for n in range(3)]
    assert done == [0, 1, 2, 3, 3]


def test_what_the_lm_fails_at_is_the_failure_of_that_item_alone():
    with refuses("b?"):
        first, failure, last = Stages(1).run("grades", grade, ["a?", "b?", "c?"])
    assert (first, last) == (2, 2) and isinstance(failure, CallFailed) and "not that" in failure.problem


@pytest.mark.parametrize(("items", "asked"), [(3, 3), (50, 5)])
def test_an_lm_that_fails_at_everything_ends_it_with_its_words(items, asked):
    with refuses() as engine, pytest.raises(CallFailed, match="not that"):
        Stages(1).run("grades", grade, [f"{n}?" for n in range(items)])
    assert len(engine.prompts) == asked


def test_faults_of_several_rounds_are_judged_together():
    stages = Stages(1)
    with refuses("b?", "c?") as engine:
        assert stages.run("grades", grade, ["a?"], more=True) == [2]
        for _ in range(5):
            assert isinstance(stages.run("grades", grade, ["b?"], more=True)[0], CallFailed)
        with pytest.raises(CallFailed, match="not that"):
            stages.run("grades", grade, ["c?"], more=True)
    assert len(engine.prompts) == 6
    with refuses():
        assert isinstance(stages.run("others", grade, ["d?"], more=True)[0], CallFailed)
        with pytest.raises(CallFailed, match="not that"):
            stages.end("others")


def test_limits_hold_over_all_stages():
    stages = Stages(1, stop=Limits(lm_calls=3))
    with scripted({GradeRelevance: {"grade": 2}}) as engine:
        track_calls(dspy.settings.lm)
        assert stages.run("one", grade, ["a?", "b?"]) == [2, 2]
        with pytest.raises(TypedRAGError, match="3 LM calls are made of the 3 allowed"):
            stages.run("two", grade, ["c?", "d?", "e?"])
    assert len(engine.prompts) == 3


def test_another_error_ends_the_work_soon():
    tried = []

    def work(number):
        tried.append(number)
        raise OSError(f"no {number}")

    with pytest.raises(OSError, match="no 0"):
        Stages(1).run("numbers", work, range(100))
    assert tried == [0]
