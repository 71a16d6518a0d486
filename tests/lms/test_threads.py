import contextvars
import os
import signal
import threading

import pytest

from typedrag.lms.threads import run_jobs

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
    begun = threading.Barrier(2, timeout=60)
    slow = threading.Event()

    def fails():
        begun.wait()
        raise OSError("gone")

    def works():
        begun.wait()
        slow.wait(60)
        return "done"

    jobs = iter([fails, works, lambda: "begun after the fault"])
    given: list[str] = []
    threading.Timer(0.2, slow.set).start()
    with pytest.raises(OSError, match="gone"):
        given.extend(run_jobs(lambda: next(jobs, None), threads=2))
    assert given == ["done"]


def test_a_signal_that_this_process_ignores_stops_nothing():
    """As Ctrl-C is ignored by what a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        jobs = iter([lambda: os.kill(os.getpid(), signal.SIGINT), lambda: "second", lambda: "third"])
        assert list(run_jobs(lambda: next(jobs, None), threads=1)) == [None, "second", "third"]
    finally:
        signal.signal(signal.SIGINT, before)
