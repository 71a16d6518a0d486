from __future__ import annotations

import contextvars
import threading

import pytest

from typedrag.threads import in_threads

_SEEN = contextvars.ContextVar("seen", default="")


def test_results_come_in_the_order_of_the_items_from_threads_that_carry_the_context():
    _SEEN.set("here")
    barrier = threading.Barrier(3)
    done: list[int] = []

    def work(number):
        barrier.wait(timeout=10)  # only passed if three are under way at once
        return number, _SEEN.get()

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
