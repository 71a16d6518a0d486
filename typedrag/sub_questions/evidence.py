"""Evidence, without an LM, that a text answers a sub-question: nearness in meaning, words in common, and
something of the kind that is asked for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from typedrag.retrieval.rerankers import cosines
from typedrag.text.sentences import sentences
from typedrag.text.words import content_words


class Evidence(NamedTuple):
    """Evidence that a text answers a sub-question.

    Attributes:
        fragment: The two consecutive sentences nearest in meaning: an answer that one begins, the next often ends.
        sentence: The cosine between the sub-question and the nearest sentence.
        two_sentences: Its cosine with the fragment.
        text: Its cosine with the whole text, or its first 200 words. If all is on the subject, a near one means less.
        words: The share of the sub-question's content words that are in the text.
        kind: 1 if the fragment has something of the kind that is asked for, such as a number for *how many*,
            -1 if it has not, 0 if no kind is asked for.
    """

    fragment: str
    sentence: float
    two_sentences: float
    text: float
    words: float
    kind: float

    @property
    def features(self) -> dict[str, float]:
        """The fields that are weighed."""
        return {name: getattr(self, name) for name in FEATURES}


FEATURES = Evidence._fields[1:]

_NUMBER = (
    r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|dozens?|half|hundreds?|thousands?|millions?|billions?"
    r"|percent|several|many)\b"
)
_DATE = (
    r"\b(1\d{3}|20\d\d)\b|\b(january|february|march|april|may|june|july|august|september|october|november|december"
    r"|century|centuries|years?|months?|weeks?|days?|ago|today|since|until|during|before|after)\b"
)
_CAUSE = (
    r"\b(because|due to|since|caused?|causes|results?|resulted|resulting|reasons?|leads?|leading|therefore|so that|thus"
    r"|helps?|in order)\b"
)
_NAME = r"(?<!^)(?<![.!?] )\b[A-Z][a-z]+"
_KINDS = tuple(
    (re.compile(cue, re.IGNORECASE), re.compile(kind, flags))
    for cue, kind, flags in (
        (
            r"\bhow (many|much|long|often|old|far|tall|big|large|fast|high|deep|hot|cold|heavy)\b"
            r"|\bwhat (percent|number|amount|age)",
            _NUMBER,
            re.IGNORECASE,
        ),
        (r"\bwhen\b|\bwhat (year|date|century|day)", _DATE, re.IGNORECASE),
        (r"\bwho(se|m)?\b", _NAME, re.NOFLAG),
        (r"\bwhy\b|\bcauses?\b|\breasons?\b", _CAUSE, re.IGNORECASE),
    )
)
"""Patterns of English words that ask for a kind, each with the pattern of that kind, and its flags."""


@lru_cache(4096)  # other weights and other answers from the same passages ask again
def find_evidence(text: str, sub_questions: tuple[str, ...]) -> tuple[Evidence, ...]:
    """The evidence that a text answers each of these sub-questions.

    Args:
        text: A text with at least one sentence.
        sub_questions: Any number of them.
    """
    single = sentences(text)
    double = [f"{one} {next_one}" for one, next_one in pairwise(single)] or single
    known = content_words(text)
    evidence = []
    for sub_question in sub_questions:
        near = cosines(sub_question, [*single, *double, text])
        of_single, of_double, of_text = near[: len(single)], near[len(single) : -1], near[-1]
        asked_words, fragment = content_words(sub_question), double[of_double.index(max(of_double))]
        evidence.append(
            Evidence(
                fragment=fragment,
                sentence=max(of_single),
                two_sentences=max(of_double),
                text=of_text,
                words=len(asked_words & known) / max(1, len(asked_words)),
                kind=kind_found(sub_question, fragment),
            )
        )
    return tuple(evidence)


def kind_found(sub_question: str, text: str) -> float:
    """1 if a text has something of the kind that is asked for, else -1, or 0; see `Evidence.kind`.

    Example:
        >>> kind_found("How many words did he coin?", "He coined 1,700."), kind_found("Who did?", "They did.")
        (1.0, -1.0)
        >>> kind_found("What is yeast?", "A fungus.")
        0.0
    """
    for cue, kind in _KINDS:
        if cue.search(sub_question):
            return 1.0 if kind.search(text) else -1.0
    return 0.0
