import threading
from concurrent.futures import CancelledError

import pytest

from typedrag.core.errors import RetrievalError
from typedrag.retrieval.search.remote import Batcher


class Gate:
    """Repeats each query; the first call waits until it is opened."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.begun, self.open = threading.Event(), threading.Event()

    def search(self, kind: str, queries: list[str]) -> list[str]:
        self.calls.append((kind, queries))
        self.begun.set()
        assert self.open.wait(30)
        if "fault" in queries:
            raise RetrievalError("the index is gone")
        return [kind + query for query in queries]


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def batcher(gate):
    """One thread, which is at the gate."""
    batcher = Batcher(gate.search, threads=1, most=lambda kind: 4)
    batcher.submit("a", ["first"])
    assert gate.begun.wait(30)
    return batcher


def test_what_waits_is_searched_together_by_its_kind_and_kinds_take_turns(gate, batcher):
    asked = [("a", ["1", "2"]), ("b", ["3"]), ("a", ["4"]), ("a", ["5", "6"]), ("a", ["7"]), ("b", [*"abcdef"])]
    futures = [batcher.submit(*each) for each in asked]
    gate.open.set()
    for (kind, queries), future in zip(asked, futures, strict=True):
        assert future.result(30) == [kind + query for query in queries]
    assert gate.calls[1:] == [("a", ["1", "2", "4"]), ("b", ["3"]), ("a", ["5", "6", "7"]), ("b", [*"abcdef"])]


def test_what_is_given_up_is_not_searched_and_an_error_is_of_its_call(gate, batcher):
    left, kept, fault, other = (
        batcher.submit(kind, [query]) for kind, query in (("a", "left"), ("a", "kept"), ("b", "fault"), ("c", "other"))
    )
    assert left.cancel()
    gate.open.set()
    assert kept.result(30) == ["akept"] and other.result(30) == ["cother"]
    with pytest.raises(RetrievalError, match="gone"):
        fault.result(30)
    with pytest.raises(CancelledError):
        left.result(30)
    assert gate.calls[1:] == [("a", ["kept"]), ("b", ["fault"]), ("c", ["other"])]
