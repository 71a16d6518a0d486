"""The loop over the items of a run: what it begins, keeps, stops at and never does twice."""

import threading
import time

import pytest

from typedrag.core.errors import CallFailed, InputError, LMUnavailable, NotMeasurable, StepFailed
from typedrag.core.records import Usage
from typedrag.lms.cost import Spending, charge
from typedrag.runs import MaxFailures, Store, work

ITEMS = [f"q{n}" for n in range(8)]
CALL = Spending(Usage(1, 10, 1), unpriced=1)


def answer(item, step, first):
    charge(CALL)
    return f"{item}'s answer" if step == "answer" else f"{step} of {first}"


def run(do=answer, store=None, *, steps=("answer", "judge"), threads=1, items=ITEMS, **how):
    store = Store() if store is None else store
    return store, work(items, do, store, steps=steps, threads=threads, **how)


def test_what_fails_has_its_reason_and_what_cannot_be_measured_is_no_failure():
    def do(item, step, first):
        match item, step:
            case "q0", "answer":
                raise StepFailed("answer", "no reply could be read")
            case "q1", "answer":
                raise InputError("the question is empty")
            case "q2", "judge":
                raise NotMeasurable("no references")
        return 1

    store, outcome = run(do, items=ITEMS[:4])
    problems = {(r.item, r.step): (r.problem, r.skipped) for r in store.read().results if r.problem}
    assert problems == {
        ("q0", "answer"): ("step 'answer' failed: no reply could be read", False),
        ("q1", "answer"): ("the question is empty", False),
        ("q2", "judge"): ("no references", True),
    }
    progress = outcome.progress
    assert (progress.done, progress.failed, progress.tried) == (4, 2, {"answer": 4, "judge": 1})
    assert progress.problems == {"answer": "the question is empty"}


def test_nothing_is_done_twice_wherever_it_ends():
    for calls in range(16):
        taken, store = [], Store()

        def do(item, step, first, taken=taken, calls=calls):
            if len(taken) == calls:
                taken.append(None)
                raise LMUnavailable("gone")
            taken.append((item, step))
            return 1

        with pytest.raises(LMUnavailable, match="gone"):
            run(do, store)
        assert len(store.read().results) == calls
        run(do, store)
        done = [one for one in taken if one]
        assert len(done) == len(set(done)) == 16


def test_too_many_failures_of_the_last_items_are_the_lm_s_own():
    def do(item, step, first):
        if int(item[1:]) > 7:
            raise CallFailed("too slow")
        return 1

    items = [f"q{n}" for n in range(12)]
    for share, stored in ((0.3, 8), (0.5, 12)):
        store = Store()
        try:
            run(do, store, steps=("answer",), items=items, stop=MaxFailures(share))
        except CallFailed:
            assert share == 0.3
        assert len(store.read().results) == stored


def test_another_error_ends_it_once_what_is_under_way_is_kept():
    both = threading.Barrier(2, timeout=5)

    def do(item, step, first):
        both.wait()
        if item == "q0":
            raise KeyError("a bug")
        time.sleep(0.2)
        return 1

    store = Store()
    with pytest.raises(KeyError, match="a bug"):
        run(do, store, threads=2)
    assert [r.item for r in store.read().results] == ["q1"]


# signals
