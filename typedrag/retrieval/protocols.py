"""The contracts of what finds and ranks passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from typedrag.records import Passage


class Retriever(Protocol):
    """Finds passages for queries."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find passages for each of the queries in one batch.

        Returns:
            One list per query, in the order given; best first, at most `k` long, possibly empty.
            The same input gives the same output. Safe to call from many threads.

        Raises:
            RetrievalError: If the index cannot be searched.
        """
        ...


class IndexRetriever(Retriever, Protocol):
    """A retriever over an index."""

    @property
    def place(self) -> str:
        """The index folder, or the address of the server that has it open."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """What tells its results from those of another retriever, as JSON values; `index` is the fingerprint."""
        ...

    def passages(self) -> Iterator[Passage]:
        """All that the index holds, in an order of its own."""
        ...


class Reranker(Protocol):
    """Puts retrieved passages in a better order.

    One whose attribute `chooses` is false keeps their order, and is handed no more than are wanted.
    """

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best passages for a query, best first.

        Returns:
            Some of the passages given, each at most once, with this reranker's scores in place of
            the retriever's; ties keep the incoming order. Safe to call from many threads.

        Raises:
            RetrievalError: If the model cannot be used.
        """
        ...


@runtime_checkable
class AspectReranker(Reranker, Protocol):
    """A reranker that also reads which sub-aspects of the query each passage was found for."""

    def rerank_by_aspects(
        self,
        query: str,
        passages: Sequence[Passage],
        k: int,
        aspects: Mapping[str, Sequence[str]],
        *,
        repeat: bool = False,
    ) -> list[Passage]:
        """The `k` passages that together serve the query best; see `rerank`.

        Args:
            aspects: Sub-aspects by the id of the passage; one that is not in it was found for none.
            repeat: Whether a passage may come more than once.

        Raises:
            RetrievalError: If the model cannot be used.
        """
        ...
