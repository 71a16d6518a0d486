"""The passages that MuSiQue, HotpotQA and 2WikiMultihopQA publish with each question, and which of them it needs."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from typedrag.datasets.examples import id_of
from typedrag.datasets.reading import Layout


class ContextPassage(NamedTuple):
    """A passage that comes with a question.

    Attributes:
        needed: Whether a good answer needs it.
    """

    title: str
    text: str
    needed: bool

    @property
    def id(self) -> str:
        """The hash of title and text, the same in whatever file they are."""
        return id_of(self.title, self.text)


class _Paragraph(Layout):
    title: str
    paragraph_text: str
    is_supporting: bool = False


Sentences = Annotated[tuple[str, list[str]], Field(strict=False)]
"""A title, and the sentences below it; a list in JSON, which has no tuples."""
Fact = Annotated[tuple[str, int], Field(strict=False)]
"""A title, and the number of a sentence below it that a good answer needs."""


def _pairs(second: str) -> BeforeValidator:
    def pairs(value: Any) -> Any:
        """Pairs as files have them, of columns as the hub has them."""
        if isinstance(value, dict) and isinstance(value.get("title"), list) and isinstance(value.get(second), list):
            return list(zip(value["title"], value[second], strict=True))
        return value

    return BeforeValidator(pairs)


class WithContexts(Layout):
    """A question with its passages: MuSiQue's `paragraphs`, or the `context` of HotpotQA and 2WikiMultihopQA."""

    paragraphs: list[_Paragraph] = Field(default=[])
    context: Annotated[list[Sentences], _pairs("sentences")] = Field(default=[])
    supporting_facts: Annotated[list[Fact], _pairs("sent_id")] = Field(default=[])

    @property
    def passages(self) -> list[ContextPassage]:
        """All its passages, in the order of the file; those without text are left out."""
        facts = {title for title, _ in self.supporting_facts}
        texts = [(p.title, p.paragraph_text, p.is_supporting) for p in self.paragraphs]
        texts += [(t, " ".join(s.strip() for s in sentences), t in facts) for t, sentences in self.context]
        return [ContextPassage(t, text, needed) for t, text, needed in texts if text.strip()]

    @property
    def passage_ids(self) -> tuple[str, ...]:
        """The passages that a good answer needs; empty if one of them did not come with the question."""
        needed = [p for p in self.passages if p.needed]
        missing = {title for title, _ in self.supporting_facts} - {p.title for p in needed}
        return () if missing else tuple(dict.fromkeys(p.id for p in needed))
