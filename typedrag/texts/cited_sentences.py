"""Which sentence of an answer has its words from which passage? Without an LM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.records import Passage
from typedrag.texts.sentences import sentences
from typedrag.texts.used_passages import used_passages
from typedrag.texts.words import content_words


class Support(NamedTuple):
    """A sentence of an answer, from `start` to before `end` in characters, and the passage that it is from."""

    start: int
    end: int
    passage_id: str


def cited_sentences(answer: str, cited: Sequence[Passage], question: str) -> list[Support]:
    """For each passage that an answer cites the sentences that use something of it, see `used_passages`.

    A passage that is cited and that no sentence is seen to use supports the answer as a whole.

    Args:
        answer: Its text.
        cited: The passages that it cites.
        question: It answers.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> cited_sentences("It is dense. Old yeast makes little gas.", passages, "Why is bread dense?")
        [Support(start=13, end=40, passage_id='yeast'), Support(start=0, end=40, passage_id='cats')]
    """
    found = []
    end = 0
    for sentence in sentences(answer):
        start = answer.find(sentence, end)
        if start < 0:  # it holds a character that was put in the place of another
            continue
        end = start + len(sentence)
        if not content_words(sentence) - content_words(question):
            continue  # it says nothing that the question does not
        used = used_passages(sentence, cited, question)
        found += [Support(start, end, passage.id) for passage in cited if passage.id in used]
    told = {support.passage_id for support in found}
    return found + [Support(0, len(answer), passage.id) for passage in cited if passage.id not in told]
