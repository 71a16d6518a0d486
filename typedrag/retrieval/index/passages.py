"""The stream of passages into an index: in batches, each id once, with a fingerprint over all of them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.retrieval.index.sources import Placed

T = TypeVar("T")
Stage = Callable[[str], AbstractContextManager[Callable[[int], object]]]
"""Shows the progress of a part: takes the name of what is counted; its context yields a function of the number done."""
_BATCH = 2_000


class RepeatedIdError(InputError):
    """A passage has the id of another one; nothing of its batch was written."""

    def __init__(self, passage_id: str, problem: str) -> None:
        super().__init__(problem, "Give each passage an id of its own")
        self.passage_id = passage_id


class Fingerprint:
    """A SHA-256 over passages in their order, begun by the fingerprint of those before them."""

    def __init__(self, before: str = "") -> None:
        self._digest = hashlib.sha256(before.encode())

    def add(self, passage: Passage) -> None:
        text = f"{passage.id}\x1f{passage.title}\x1f{passage.text}\x1e"
        self._digest.update(text.encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class IdHashes:
    """Finds ids that occur twice, with 8 to 16 bytes an id: Lucene itself would keep both passages."""

    def __init__(self) -> None:
        self._sorted: list[NDArray[np.int64]] = []  # each longer than the next, so there are only a few

    def add(self, passages: Sequence[Passage], number: int) -> None:
        """Add the ids of passages, of which the first has this number; raises if one has occurred before."""
        hashes = np.array([hash(p.id) for p in passages], dtype=np.int64)
        again = np.ones(len(hashes), dtype=bool)
        again[np.unique(hashes, return_index=True)[1]] = False
        for before in self._sorted:
            again |= before[np.searchsorted(before, hashes).clip(max=len(before) - 1)] == hashes
        if again.any():
            first = int(again.argmax())
            raise RepeatedIdError(
                passages[first].id, f"passage {number + first} has the id '{passages[first].id}' of one before it"
            )
        hashes.sort()
        while self._sorted and len(self._sorted[-1]) <= len(hashes):
            hashes = np.sort(np.concatenate([self._sorted.pop(), hashes]), kind="stable")
        self._sorted.append(hashes)


def check_ids(passages: Iterable[Passage], fingerprint: Fingerprint) -> Iterator[Passage]:
    """The same passages, whose ids differ and which are added to the fingerprint."""
    ids, number = IdHashes(), 1
    for batch in batches(passages, _BATCH):
        ids.add(batch, number)
        number += len(batch)
        for passage in batch:
            fingerprint.add(passage)
            yield passage


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the passages, or others, in lists of this length, in bounded memory."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def require_passages(passages: Iterable[T], sources: Sequence[str]) -> Iterator[T]:
    """The same passages, after a check that there is a first one."""
    stream = iter(passages)
    first = next(stream, None)
    if first is None:
        raise InputError(f"no passage was found in {', '.join(sources)}", "Name sources that hold text")
    return chain([first], stream)


def repeated_error(passage_ids: Sequence[str]) -> RepeatedIdError:
    many = f"{len(passage_ids)} passages are in the index already"
    return RepeatedIdError(passage_ids[0], f"{many}, such as '{passage_ids[0]}'")


@contextmanager
def add_places(read: Callable[[], Iterator[Placed]]) -> Iterator[None]:
    """Name the file and line of passages with the same id: looked up only then, as an index does not hold them."""
    try:
        yield
    except RepeatedIdError as error:
        places = islice((placed.place for placed in read() if placed.passage.id == error.passage_id), 2)
        raise RepeatedIdError(error.passage_id, f"{error.problem}: {' and '.join(places)}") from error
