"""The sentences of an answer that use its cited passages, told without an LM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.records import Passage
from typedrag.texts.sentences import sentences
from typedrag.texts.used_passages import used_passages
from typedrag.texts.words import content_words


class Support(NamedTuple):
    """A sentence of an answer, from `start` to before `end` in characters, and the passage that it uses."""

    start: int
    end: int
    passage_id: str


def cited_sentences(answer: str, cited: Sequence[Passage], question: str) -> list[Support]:
    """The sentences of an answer that use something of each passage it cites, see `used_passages`.

    A cited passage that no sentence uses counts as support for the whole answer.

    Args:
        answer: The text of the answer.
        cited: The passages that it cites.
        question: The question that it answers.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> cited_sentences("It is dense. Old yeast makes little gas.", passages, "Why is bread dense?")
        [Support(start=13, end=40, passage_id='yeast'), Support(start=0, end=40, passage_id='cats')]
    """
    supports = []
    end = 0
    for sentence in sentences(answer):
        start = answer.find(sentence, end)
        if start < 0:  # the sentence holds a character that was replaced
            continue
        end = start + len(sentence)
        if not content_words(sentence) - content_words(question):
            continue  # the sentence says nothing that the question does not
        used = used_passages(sentence, cited, question)
        supports += [Support(start, end, passage.id) for passage in cited if passage.id in used]
    used_ids = {support.passage_id for support in supports}
    return supports + [Support(0, len(answer), passage.id) for passage in cited if passage.id not in used_ids]
