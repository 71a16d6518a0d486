"""FailureTracker of an answer that show without knowing the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import dspy

from typedrag.core.errors import InputError
from typedrag.core.records import CUT_OFF, Passage
from typedrag.metrics.contradictions import contradictions, contradictions_by
from typedrag.metrics.feedback import listed, quoted
from typedrag.metrics.judges.support_judges import open_support
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.text.language import detect_language, detect_main_language
from typedrag.text.sentences import repeated_sentences, used_passages

BY_WORDS = "words"
_QUOTED = 20
"""The number of words of a sentence to quote."""


def unused_citations(answer: str, citations: Sequence[str], passages: Sequence[Passage], question: str) -> list[str]:
    """The ids of the passages that an answer cites without using them; empty if its language differs from theirs.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> unused_citations("Because old yeast makes little gas.", ["yeast", "cats"], passages, "Why is it dense?")
        ['cats']
        >>> unused_citations("Weil alte Hefe nur wenig Gas bildet.", ["yeast"], passages, "Why is it dense?")
        []
    """
    cited = list({p.id: p for p in passages if p.id in citations}.values())
    used = used_passages(answer, cited, question)
    if cited and not used and detect_language(answer) != detect_main_language(p.text for p in cited):
        return []
    return [p.id for p in cited if p.id not in used]


@metric
class Defects(Metric):
    """The number of faults that show in the answer itself; no LM is asked.

    Measures, fewer being better: `repeated_sentences`; `contradictions`, sentences that exclude an earlier one,
    see `contradictions`; `unused_citations`, cited passages that the answer does not use, see `used_passages`;
    `cut_off`, 1 if a reply ended at `max_tokens`, else 0. The score is 1 / (1 + their sum).

    Args:
        make: What finds contradictions: `words`, or `nli:NAME`, a model of natural language inference.

    Raises:
        InputError: If the make is neither of these.
    """

    name: ClassVar[str] = "defects"
    measures = ("repeated_sentences", "contradictions", "unused_citations", "cut_off")

    make: str = BY_WORDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.make != BY_WORDS and not self.make.startswith("nli:"):
            raise InputError(f"contradictions cannot be told by '{self.make}'", f"Write {BY_WORDS} or nli:NAME")
        self._support = None if self.make == BY_WORDS else open_support(self.make)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Count the faults of an answer and of its program's fallbacks."""
        answer, question = prediction.answer, example.question
        repeated = repeated_sentences(answer)
        support = self._support
        excluding = contradictions_by(support, answer, question) if support else contradictions(answer, question)
        unused = unused_citations(answer, prediction.get("citations") or (), prediction.get("passages") or (), question)
        cut_off = CUT_OFF in (prediction.get("fallback") or "")
        counts = (len(repeated), len(excluding), len(unused), cut_off)
        messages = (
            f"It says again: {listed(repeated, words=_QUOTED)}." if repeated else "",
            *(_on(first, second) for first, second in excluding[:1]),
            f"It cites, and uses nothing of: {', '.join(unused)}." if unused else "",
            "A reply was cut off before its end." if cut_off else "",
        )
        measures = {name: float(count) for name, count in zip(self.measures, counts, strict=True)}
        details = {"repeated": repeated, "contradictions": [list(pair) for pair in excluding], "unused": unused}
        return Scored(1 / (1 + sum(counts)), " ".join(filter(None, messages)), measures, details)


def _on(first: str, second: str) -> str:
    if first == second:
        return f"It contradicts itself in {quoted(first, _QUOTED)}."
    return f"It says {quoted(first, _QUOTED)} and {quoted(second, _QUOTED)}, which exclude each other."
