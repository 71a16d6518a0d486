"""Several type classifiers that vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.weights import softmax
from typedrag.question_types import QuestionType


class VotingTypeClassifier(ProbabilityClassifier):
    """Names the type that several classifiers together find likeliest.

    Args:
        members: Classifiers that know the same types.
    """

    def __init__(self, members: Sequence[ProbabilityClassifier]) -> None:
        super().__init__()
        self.members = list(members)
        self.reads_english_only = any(member.reads_english_only for member in members)

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The members' geometric mean, scaled to sum to 1; see `ProbabilityClassifier.probabilities`.

        It is better calibrated than the arithmetic mean, which is underconfident.
        """
        votes = [member.probabilities(question) for member in self.members]
        logs = np.log([[max(vote[t], _LEAST) for t in votes[0]] for vote in votes])
        return dict(zip(votes[0], softmax(logs.mean(axis=0)).tolist(), strict=True))


_LEAST = 1e-9
"""The least probability of a vote, so that no member alone can rule a type out."""
