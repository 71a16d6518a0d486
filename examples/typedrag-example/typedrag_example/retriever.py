"""A retriever over the lines of a text file."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typedrag import Passage
from typedrag.core.errors import RetrievalError


class Lines:
    """Finds the lines that share the most words with a query: `--retriever lines:FILE`."""

    def __init__(self, file: str) -> None:
        try:
            self._text = Path(file).read_text("utf-8")
        except OSError as error:
            raise RetrievalError(f"{file} cannot be read: {error.strerror}", "Name a text file") from error
        self.place = f"lines:{file}"
        self.identity: dict[str, Any] = {
            "index": hashlib.sha256(self._text.encode()).hexdigest(),
            "retriever": "lines",
        }

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The `k` best lines for each query."""
        return [self._best(set(query.lower().split()))[:k] for query in queries]

    def passages(self) -> Iterator[Passage]:
        """All lines."""
        return (Passage(str(n), line) for n, line in enumerate(self._text.splitlines(), 1) if line.strip())

    def _best(self, words: set[str]) -> list[Passage]:
        scored = ((len(words & set(line.text.lower().split())), line) for line in self.passages())
        best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
        return [Passage(line.id, line.text, score=float(score)) for score, line in best]
