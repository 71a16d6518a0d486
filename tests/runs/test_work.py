"""The loop over the items of a run: what it begins, keeps, stops at and never does twice."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from typedrag.core.errors import CallFailed, InputError, LMUnavailable, NotMeasurable, StepFailed
from typedrag.core.records import Usage
from typedrag.lms.cost import Spending, charge
from typedrag.runs import Limits, MaxFailures, Result, Store, read_folder, work

ITEMS = [f"q{n}" for n in range(8)]
CALL = Spending(Usage(1, 10, 1), unpriced=1)


def answer(item, step, first):
    charge(CALL)
    return f"{item}'s answer" if step == "answer" else f"{step} of {first}"


def run(do=answer, store=None, *, steps=("answer", "judge"), threads=1, items=ITEMS, **how):
    store = Store() if store is None else store
    return store, work(items, do, store, steps=steps, threads=threads, **how)


def started(folder, seconds):
    code = textwrap.dedent(PROCESS).format(folder=str(folder), seconds=seconds)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


PROCESS = """
import sys, time
from pathlib import Path
from tests.runs.test_folder import opened
from typedrag.runs import work

def do(item, step, first):
    print(f"begin {{item}}\\n", end="", flush=True)
    time.sleep({seconds})
    print(f"end {{item}}\\n", end="", flush=True)
    return 1

items = {{f"q{{n}}": {{}} for n in range(50)}}
with opened(Path({folder!r}), items=items, resume=True) as held:
    work(items, do, held.store, steps=("answer",), threads=2)
"""


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
    both = threading.Barrier(2, timeout=60)

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


@pytest.mark.parametrize("threads", [1, 3, 20])
def test_all_steps_of_all_items_are_taken_each_with_what_it_cost(threads):
    store, outcome = run(threads=threads)
    assert outcome.stopped == "" and outcome.progress.done == 8
    assert {(r.item, r.step): r for r in store.read().results} == {
        (item, step): Result(item, step, value, spent=CALL)
        for item in ITEMS
        for step, value in (("answer", f"{item}'s answer"), ("judge", f"judge of {item}'s answer"))
    }
    assert outcome.progress.spent.usage.lm_calls == 16


def test_steps_that_wait_for_an_answer_come_before_new_items():
    taken = []
    run(lambda item, step, first: taken.append((item, step)), items=ITEMS[:2], steps=("answer", "a", "b"))
    assert taken == [(item, step) for item in ITEMS[:2] for step in ("answer", "a", "b")]


def test_an_lm_that_fails_at_some_items_fails_these_alone():
    def do(item, step, first):
        if item in ("q2", "q7"):
            raise CallFailed("too slow")
        return 1

    store, outcome = run(do, steps=("answer",))
    assert outcome.progress.failures == {"answer": 2}
    assert {r.item for r in store.read().results if r.problem == "too slow"} == {"q2", "q7"}


@pytest.mark.parametrize("works_until", [0, 2])
def test_an_lm_that_is_gone_ends_it_and_leaves_no_failure(works_until):
    def do(item, step, first):
        if int(item[1:]) >= works_until:
            raise CallFailed("too slow")
        return 1

    store = Store()
    with pytest.raises(CallFailed, match="too slow"):
        run(do, store, steps=("answer",))
    assert [r.problem for r in store.read().results] == [""] * works_until


def test_a_reason_to_stop_is_looked_for_before_each_step():
    store, outcome = run(stop=Limits(lm_calls=5))
    assert outcome.stopped == "5 LM calls are made of the 5 allowed"
    assert len(store.read().results) == 5
    again = run(store=store, stop=Limits(lm_calls=5))[1]  # what was spent before counts
    assert again.stopped and len(store.read().results) == 5
    assert run(store=store)[1].stopped == ""
    assert len(store.read().results) == 16


def test_ctrl_c_keeps_what_is_under_way_and_begins_nothing(tmp_path):
    process = started(tmp_path / "run", 0.5)
    begun = [process.stdout.readline(), process.stdout.readline()]
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    begun += [line for line in stdout.splitlines() if line.startswith("begin")]
    assert process.returncode == -signal.SIGINT and stderr.rstrip().endswith("KeyboardInterrupt")
    assert len(begun) == 2
    assert {r.item for r in read_folder(tmp_path / "run").results} == {line.split()[1] for line in begun}


def test_what_hangs_is_not_waited_for(tmp_path):
    process = started(tmp_path / "run", 60)
    assert process.stdout.readline().startswith("begin")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert read_folder(tmp_path / "run").results == ()
