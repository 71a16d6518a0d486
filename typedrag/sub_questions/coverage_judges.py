"""The kinds of coverage judges: an LM, similarity, or an LM where similarity is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import dspy

from typedrag.errors import InputError
from typedrag.lms.trace import Stopwatch, add_step
from typedrag.records import Step
from typedrag.retrieval.logistic import LogisticModel
from typedrag.sub_questions.coverage_judge import (
    AnyCoverageJudge,
    Coverage,
    CoverageJudge,
    SentenceCoverageJudge,
    told,
)
from typedrag.sub_questions.evidence import Evidence, find_evidence
from typedrag.sub_questions.fragments import locate_fragment

Cite = Literal["similarity", "cascade", "sentences", "words"]
"""The way in which a judge shows what answers a sub-question."""
DEFAULT_CITE: Cite = "similarity"
WEIGHTS = Path(__file__).with_name("coverage_weights.json")
UNSURE = 0.15
"""The distance from 0.5 within which a cascade takes a probability for unsure."""


class SimilarityCoverageJudge(AnyCoverageJudge):
    """Judges, without an LM, how likely a text answers each sub-question: see `Evidence`.

    The fragment is the two sentences in a row that are nearest in meaning.

    Args:
        weights: By default those that typedrag ships.
    """

    asks_lm: ClassVar[bool] = False

    def __init__(self, weights: LogisticModel | None = None) -> None:
        super().__init__()
        self.weights = weights or LogisticModel.load(WEIGHTS)

    @property
    def settings(self) -> dict[str, Any]:
        """The weights; see `AnyCoverageJudge`."""
        return {"intercept": self.weights.intercept, "weights": self.weights.weights}

    def forward(self, text: str, sub_questions: Sequence[str]) -> dspy.Prediction:
        """The `verdicts`, a `Coverage` for each sub-question.

        Raises:
            RetrievalError: If MiniLM is not on this machine or cannot be loaded.
        """
        watch = Stopwatch()
        if text.strip():
            verdicts = [self._verdict(text, evidence) for evidence in find_evidence(text, sub_questions)]
        else:
            verdicts = [Coverage(False, probability=0.0) for _ in sub_questions]
        add_step(Step("judge coverage", text, told(verdicts), seconds=watch.seconds))
        return dspy.Prediction(verdicts=verdicts)

    def _verdict(self, text: str, evidence: Evidence) -> Coverage:
        probability = self.weights.probability(evidence.features)
        if probability < 0.5:
            return Coverage(False, probability=probability)
        place = locate_fragment(text, evidence.fragment)
        return Coverage(True, evidence.fragment, place.position if place else None, probability=probability)


class CascadeCoverageJudge(AnyCoverageJudge):
    """Asks the LM, which quotes words, only about the sub-questions of which similarity is unsure.

    Args:
        sub_questions_per_call: See `CoverageJudge`.
        unsure: The distance from 0.5 within which a probability is unsure.
    """

    def __init__(self, sub_questions_per_call: int = 10, unsure: float = UNSURE) -> None:
        super().__init__()
        self.first = SimilarityCoverageJudge()
        self.second = CoverageJudge(sub_questions_per_call=sub_questions_per_call)
        self._unsure = unsure

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of both judges, and the bound for asking the second; see `AnyCoverageJudge`."""
        return {**self.first.settings, **self.second.settings, "unsure": self._unsure}

    def forward(self, text: str, sub_questions: Sequence[str]) -> dspy.Prediction:
        """The `verdicts`, a `Coverage` for each sub-question; where the LM is asked, a probability is halfway to its.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be reached.
            RetrievalError: If MiniLM is not on this machine or cannot be loaded.
        """
        verdicts: list[Coverage] = self.first(text=text, sub_questions=sub_questions).verdicts
        unsure = [i for i, v in enumerate(verdicts) if text.strip() and abs((v.probability or 0) - 0.5) < self._unsure]
        replies = self.second(text=text, sub_questions=[sub_questions[i] for i in unsure]).verdicts if unsure else []
        for i, verdict in zip(unsure, replies, strict=True):
            verdicts[i] = replace(verdict, probability=((verdicts[i].probability or 0) + verdict.answered) / 2)
        return dspy.Prediction(verdicts=verdicts)


def asks_lm(cite: str) -> bool:
    """True if the judge with this way to cite asks an LM."""
    return cite != "similarity"


def build_coverage_judge(cite: Cite = DEFAULT_CITE, sub_questions_per_call: int = 10) -> AnyCoverageJudge:
    """The judge that cites in this way.

    Raises:
        InputError: If the way is unknown.
    """
    if cite == "similarity":
        return SimilarityCoverageJudge()
    if cite == "cascade":
        return CascadeCoverageJudge(sub_questions_per_call)
    judges = {"words": CoverageJudge, "sentences": SentenceCoverageJudge}
    if cite not in judges:
        raise InputError(f"coverage cannot cite '{cite}'", f"Use {' or '.join(get_args(Cite))}")
    return judges[cite](sub_questions_per_call=sub_questions_per_call)
