from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from typedrag.errors import RetrievalError
from typedrag.records import Passage
from typedrag.retrieval.search.gathering import Gatherer


class Gate:
    """Gives each query a passage of its name; the first call waits until it is opened."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.begun, self.open = threading.Event(), threading.Event()

    def search(self, kind: str, queries: list[str]) -> list[list[Passage]]:
        self.calls.append((kind, queries))
        self.begun.set()
        assert self.open.wait(30)
        if "fault" in queries:
            raise RetrievalError("the index is gone")
        return [[Passage(query, kind)] for query in queries]


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def gatherer(gate):
    """One thread, which is at the gate."""
    gatherer = Gatherer(gate.search, threads=1, most=4)
    gatherer.submit("a", ["first"])
    assert gate.begun.wait(30)
    return gatherer


def test_what_waits_is_searched_together_by_its_kind(gate, gatherer):
    asked = [("a", ["1", "2"]), ("b", ["3"]), ("a", ["4"]), ("a", ["5", "6"]), ("a", ["7"]), ("b", [*"abcdef"])]
    futures = [gatherer.submit(*each) for each in asked]
    gate.open.set()
    for (kind, queries), future in zip(asked, futures, strict=True):
        assert future.result(30) == [[Passage(query, kind)] for query in queries]
    assert gate.calls[1:] == [("a", ["1", "2", "4", "7"]), ("b", ["3"]), ("a", ["5", "6"]), ("b", [*"abcdef"])]


def test_what_is_given_up_is_not_searched(gate, gatherer):
    left, kept = gatherer.submit("a", ["left"]), gatherer.submit("a", ["kept"])
    assert left.cancel()
    gate.open.set()
    assert kept.result(30) == [[Passage("kept", "a")]]
    with pytest.raises(CancelledError):
        left.result(30)
    assert gate.calls[1:] == [("a", ["kept"])]


def test_an_error_is_of_all_in_its_call_and_no_other(gate, gatherer):
    futures = [gatherer.submit(kind, [query]) for kind, query in (("a", "one"), ("a", "fault"), ("b", "other"))]
    gate.open.set()
    for future in futures[:2]:
        with pytest.raises(RetrievalError, match="gone"):
            future.result(30)
    assert futures[2].result(30) == [[Passage("other", "b")]]


def test_apart_an_error_is_of_its_search_alone(gate):
    gatherer = Gatherer(gate.search, threads=1, most=4, apart=True)
    gatherer.submit("a", ["first"])
    assert gate.begun.wait(30)
    before, fault, after = (gatherer.submit("a", [query]) for query in ("before", "fault", "after"))
    gate.open.set()
    with pytest.raises(RetrievalError, match="gone"):
        fault.result(30)
    assert [future.result(30)[0][0].id for future in (before, after)] == ["before", "after"]
    assert gate.calls[1:] == [("a", ["before", "fault", "after"]), *(("a", [q]) for q in ("before", "fault", "after"))]
