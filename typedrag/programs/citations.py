"""The citations of an answer, checked: it must use the passages that it cites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.records import Passage
from typedrag.texts.citations import used_passages


class Cited(NamedTuple):
    """The ids of the passages that are cited, and the citations that were dropped with the reason."""

    ids: tuple[str, ...]
    dropped: tuple[str, ...]


def check_citations(numbers: Sequence[int], answer: str, passages: Sequence[Passage], question: str) -> Cited:
    """Keep the citations of passages that exist and that the answer uses.

    Small LMs tend to cite every passage they see. If `used_passages` would leave none, as when answer
    and passages differ in language, all cited passages are kept.

    Args:
        numbers: The numbers that the LM cited, from 1.
        answer: The LM's answer.
        passages: Those that the LM saw, in order.
        question: The question.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> check_citations([1, 2, 7], "Bread gets dense because old yeast makes little gas.", passages, "Why?")
        Cited(ids=('yeast',), dropped=('citation cats (the answer uses nothing of it)', 'citation 7 (no such passage)'))
    """
    cited = list(dict.fromkeys(numbers))
    existing = [passages[n - 1] for n in cited if 1 <= n <= len(passages)]
    used = used_passages(answer, existing, question) or {p.id for p in existing}
    return Cited(
        ids=tuple(dict.fromkeys(p.id for p in existing if p.id in used)),  # a list ranker may repeat a passage
        dropped=(
            *(f"citation {p.id} (the answer uses nothing of it)" for p in existing if p.id not in used),
            *(f"citation {n} (no such passage)" for n in cited if not 1 <= n <= len(passages)),
        ),
    )
