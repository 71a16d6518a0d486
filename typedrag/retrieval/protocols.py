"""The contracts of retrievers and rerankers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from typedrag.core.records import Passage


class Retriever(Protocol):
    """Finds passages for queries."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find passages for each of a batch of queries.

        Returns:
            One list per query, in the queries' order; best first, at most `k` long, possibly empty.
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
        """Values, for JSON, that tell its results from another retriever's; `index` is the fingerprint."""
        ...

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in an order of its own."""
        ...

    def passage(self, passage_id: str) -> Passage | None:
        """The passage of this id; None if the index holds none."""
        ...


class Reranker(Protocol):
    """Puts retrieved passages in a better order.

    A reranker whose attribute `chooses` is false keeps their order and gets no more than `k` passages.
    """

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best passages for a query, best first.

        Returns:
            Some of the passages, each at most once, with this reranker's scores in place of
            the retriever's; ties keep the incoming order. Safe to call from many threads.

        Raises:
            RetrievalError: If the model cannot be used.
        """
        ...


@runtime_checkable
class AspectReranker(Reranker, Protocol):
    """A reranker that also reads the sub-aspects of the query that each passage was found for."""

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
            aspects: Sub-aspects by passage id; a passage without an entry was found for none.
            repeat: If True, a passage may occur more than once.

        Raises:
            RetrievalError: If the model cannot be used.
        """
        ...
