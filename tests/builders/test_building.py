from __future__ import annotations

import contextvars
import threading

import pytest

from typedrag.builders.building import in_threads, part_by_hash

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


def test_parts_have_their_shares():
    parts = [part_by_hash(f"question {n}", 0, validation=0.2, test=0.1) for n in range(2000)]
    assert abs(parts.count("validation") / 2000 - 0.2) < 0.03 and abs(parts.count("test") / 2000 - 0.1) < 0.03
    assert part_by_hash("x", 0, validation=0, test=0) == "train"
