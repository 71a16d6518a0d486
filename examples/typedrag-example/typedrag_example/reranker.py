"""A reranker of one's own."""

from collections.abc import Sequence

from typedrag.core.records import Passage


class Shortest:
    """Puts short passages first.

    Args:
        name: What stands behind the colon in `shortest:NAME`; not used here.
    """

    def __init__(self, name: str = "") -> None: ...

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` shortest."""
        return sorted(passages, key=lambda passage: len(passage.text))[:k]
