"""A retriever without Lucene: enough where it does not matter what is found."""

from collections.abc import Sequence

from typedrag.core.records import Passage
from typedrag.text.words import content_words

PASSAGES = (
    Passage("cold", "Cold dough makes bread dense.", "Bread"),
    Passage("flour", "Too much flour makes bread heavy.", "Bread"),
    Passage("walls", "Wash the walls before you paint them.", "Paint"),
    Passage("uniforms", "School uniforms help pupils.", "School"),
)


class WordRetriever:
    """Finds passages by shared content words."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._search(query)[:k] for query in queries]

    def _search(self, query: str) -> list[Passage]:
        wanted = content_words(query)
        scored = [(len(wanted & content_words(p.text)), p) for p in PASSAGES]
        return [Passage(p.id, p.text, p.title, float(n)) for n, p in sorted(scored, key=lambda s: -s[0]) if n]
