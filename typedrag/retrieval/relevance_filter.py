"""Relevance filters, which drop irrelevant passages between retrieval and answer (the option `relevance`)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Passage, Step
from typedrag.core.registry import Spec, SpecGrammar
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.lms.trace import Stopwatch, add_step, collect_steps, record_fallback, reserve_calls
from typedrag.retrieval.local_models import LogisticModel
from typedrag.retrieval.rerankers import CROSS_ENCODER, cosines, shared_reranker
from typedrag.signatures.fields import add_keys, number_passages, require_keys, values
from typedrag.signatures.judging import JudgePassages
from typedrag.text.language import is_english

RELEVANCE_FILTERS = SpecGrammar(
    "relevance filter",
    "none", "score", "set", "cross-encoder[:NAME]", "lm", "cascade", "cascade:score", "cascade:cross-encoder[:NAME]",
)  # fmt: skip

Probability = float | None
"""The probability that a passage is relevant to a question; None if unknown, in which case the passage is kept."""
WEIGHTS = Path(__file__).with_name("relevance.json")
_MOST_WORDS = 200  # words of a passage that count: about as many as MiniLM reads
_TOKENS_A_VERDICT = 12
_ALWAYS_UNSURE = (0.4, 0.6)  # probabilities between: by a threshold of 0.5 alone the LM would judge nothing


class RelevanceFilter(dspy.Module):
    """Drops irrelevant passages between retrieval and answer, so that the answering LM does not see them.

    It keeps passages whose probability, from 0 to 1, is not below the threshold.
    """

    lm_calls = 0  # LM calls for one question at most, retries aside

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The probability of each passage, in their order; each filter implements it. There is at least one passage."""
        raise NotImplementedError

    def relevant(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages that are relevant to a question, in their order; the dropped ones are recorded as a step."""
        if not passages:
            return []
        watch = Stopwatch()
        with collect_steps() as steps:
            probabilities = self.probabilities(query, passages)
        judged = list(zip(passages, probabilities, strict=True))
        relevant = [passage for passage, p in judged if p is None or p >= self.threshold]
        add_step(
            Step(
                "relevance",
                query,
                f"{len(relevant)} of {len(passages)} passages",
                passage_ids=tuple(passage.id for passage in relevant),
                dropped=tuple(
                    f"passage {passage.id} (not relevant: {p:.2f}, below {self.threshold:g})"
                    for passage, p in judged
                    if p is not None and p < self.threshold
                ),
                seconds=watch.seconds,
                steps=tuple(steps),
            )
        )
        return relevant


class Features(NamedTuple):
    """The features that `ScoreFilter` reads.

    Other features add nothing to these on ANTIQUE's passages: the margin of the cosine over the other passages,
    the share of the question's words in the passage, its rank, and its retrieval score (AUC on questions outside the
    training set 0.90 with and without them).
    """

    cosine: float  # the cosine between MiniLM's embeddings of question and passage
    log_words: float
    """ln(1 + words of the passage). A passage of a few words answers nothing. A relevant long passage is less near
    than a relevant short one, since it says other things as well."""


def compute_features(query: str, passages: Sequence[Passage]) -> list[Features]:
    near = cosines(query, [p.titled for p in passages])
    return [Features(c, math.log1p(min(len(p.text.split()), _MOST_WORDS))) for c, p in zip(near, passages, strict=True)]


class ScoreFilter(RelevanceFilter):
    """Keeps passages by a logistic regression on the nearness of question and passage, in `relevance.json`.

    `python -m benchmarks.relevance_filter --train` trains it on ANTIQUE's human labels, and prints how well it does on
    questions outside the training set. It needs MiniLM, which is loaded at the first question and reads English;
    on other languages it is untested.
    """

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        if not is_english(query):
            add_step(Step("language", query, "the question is not in English, the only language that the filter reads"))
            return [None] * len(passages)
        model = LogisticModel.load(WEIGHTS)
        return [model.probability(features._asdict()) for features in compute_features(query, passages)]


class SetFilter(ScoreFilter):
    """Judges the passages together: all pass if the most relevant one does by `ScoreFilter`, else none.

    The answer to a question of several parts lies in several passages, each of which is only half relevant to the
    whole question, so that passages judged one by one lose parts of it.
    """

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        each = super().probabilities(query, passages)
        return [max((p for p in each if p is not None), default=None)] * len(passages)


class CrossEncoderFilter(RelevanceFilter):
    """Keeps passages that a cross-encoder finds relevant, by the sigmoid of its score, as in training."""

    def __init__(self, threshold: float, name: str = "") -> None:
        super().__init__(threshold)
        self._name = name or CROSS_ENCODER

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        return [*shared_reranker(f"cross-encoder:{self._name}").probabilities(query, passages)]


class LMFilter(RelevanceFilter):
    """Keeps the passages that the LM in use finds relevant: probabilities are 1 or 0.

    If no reply can be read, or only the LM call for the answer is left, all passages are kept.
    """

    lm_calls = 1

    def __init__(self, threshold: float, passage_words: int, retries: int) -> None:
        super().__init__(threshold)
        self.predict = dspy.Predict(JudgePassages)
        self._passage_words, self._retries = passage_words, retries

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        try:
            return self.verdicts(query, passages)
        except StepFailed as failure:
            record_fallback(failure, "no passage is dropped")
            return [None] * len(passages)

    def verdicts(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        shown = add_keys(number_passages(passages, self._passage_words), "p")
        with reserve_calls(1):  # for the answer
            reply = ask(
                "judge relevance",
                with_settings(self.predict, allow_tokens(len(passages) * _TOKENS_A_VERDICT)),
                retries=self._retries,
                signature=require_keys(self.predict.signature, shown),
                passages=shown,
                question=query,
            )
        relevant = [float(verdict) for verdict in values(reply.prediction.relevant)]
        summary = f"{sum(relevant):.0f} of {len(passages)} of use"
        add_step(Step("judge relevance", query, summary, seconds=reply.seconds, usage=reply.usage))
        return [*relevant]


class CascadeFilter(RelevanceFilter):
    """Asks the LM, in one call, only about the passages of which another filter is unsure.

    Unsure are probabilities between the threshold and 1 - threshold, in either order, and at least those from 0.4 to
    0.6: passages below are dropped, those above kept. If the LM fails, the first filter's probabilities stand; its
    threshold is that of both.
    """

    lm_calls = 1

    def __init__(self, first: RelevanceFilter, second: LMFilter) -> None:
        super().__init__(first.threshold)
        self.first, self.second = first, second

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        probabilities = self.first.probabilities(query, passages)
        low, *_, high = sorted((self.threshold, 1 - self.threshold, *_ALWAYS_UNSURE))
        unsure = [i for i, p in enumerate(probabilities) if p is None or low <= p <= high]
        if not unsure:
            return probabilities
        try:
            verdicts = self.second.verdicts(query, [passages[i] for i in unsure])
        except StepFailed as failure:
            record_fallback(failure, "passages are kept or dropped as without the LM")
            return probabilities
        for i, verdict in zip(unsure, verdicts, strict=True):
            probabilities[i] = verdict
        return probabilities


def build_relevance_filter(spec: str, threshold: float, *, passage_words: int, retries: int) -> RelevanceFilter | None:
    """The filter of a spec, with models that are loaded at the first question; None for `none`."""
    lm = LMFilter(threshold, passage_words, retries)
    match RELEVANCE_FILTERS.parse(spec):
        case Spec("none"):
            return None
        case Spec("score"):
            return ScoreFilter(threshold)
        case Spec("set"):
            return SetFilter(threshold)
        case Spec("cross-encoder", name):
            return CrossEncoderFilter(threshold, name)
        case Spec("lm"):
            return lm
        case Spec("cascade:cross-encoder", name):
            return CascadeFilter(CrossEncoderFilter(threshold, name), lm)
        case _:
            return CascadeFilter(ScoreFilter(threshold), lm)
