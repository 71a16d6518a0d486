from __future__ import annotations

import contextvars
import threading

import pytest

from typedrag.threads import in_threads, run_jobs

VARIABLE = contextvars.ContextVar("variable", default="unset")


def test_what_a_job_gives_can_lead_to_others():
    waiting = [lambda: 3]
    given = []
    for n in run_jobs(lambda: waiting.pop() if waiting else None, threads=2):
        given.append(n)
        waiting.extend([lambda n=n: n - 1] if n else [])
    assert given == [3, 2, 1, 0]


def test_threads_carry_the_context_of_who_asks():
    VARIABLE.set("mine")
    jobs = iter([VARIABLE.get] * 3)
    assert list(run_jobs(lambda: next(jobs, None), threads=2)) == ["mine"] * 3


def test_after_a_fault_none_begins_and_those_under_way_end():
    begun = threading.Barrier(2, timeout=5)
    slow = threading.Event()

    def fails():
        begun.wait()
        raise OSError("gone")

    def works():
        begun.wait()
        slow.wait(5)
        return "done"

    jobs = iter([fails, works, lambda: "begun after the fault"])
    given: list[str] = []
    threading.Timer(0.2, slow.set).start()
    with pytest.raises(OSError, match="gone"):
        given.extend(run_jobs(lambda: next(jobs, None), threads=2))
    assert given == ["done"]


def test_results_come_in_the_order_of_the_items_from_threads_that_carry_the_context():
    VARIABLE.set("here")
    barrier = threading.Barrier(3)
    done: list[int] = []

    def work(number):
        barrier.wait(timeout=10)  # only passed if three are under way at once
        return number, VARIABLE.get()

    assert in_threads(work, [0, 1, 2], 3, done.append) == [(n, "here") for n in range(3)]
    assert done[-1] == 3


def test_a_fault_ends_the_work_soon():
    tried = []

    def work(number):
        tried.append(number)
        raise OSError(f"no {number}")

    with pytest.raises(OSError, match="no 0"):
        in_threads(work, list(range(100)), 1, lambda done: None)
    assert tried == [0]
