"""A retriever that finds, for each query, passages named after it: control flow needs no index."""

from typedrag.core.records import Passage
from typedrag.programs import program_class, program_names

ASKING_PROGRAMS = [name for name in program_names() if not program_class(name).reads_labels]
"""The programs that answer by an LM."""


class Numbered:
    """Finds `k` passages for any query, or as many as there are; remembers what it was asked."""

    def __init__(self, there: int = 100) -> None:
        self.there = there
        self.batches: list[tuple[list[str], int]] = []

    def search(self, queries, k):
        self.batches.append((list(queries), k))
        return [
            [Passage(f"{query}#{n}", f"Passage {n} on: {query}", score=1.0) for n in range(min(k, self.there))]
            for query in queries
        ]
