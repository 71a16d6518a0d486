"""A type classifier trained on English, with the LM for questions in other languages."""

from __future__ import annotations

from collections.abc import Mapping

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.trace import add_step
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.lm import LMTypeClassifier
from typedrag.question_types import QuestionType
from typedrag.records import Step
from typedrag.texts.language import is_english


class ByLanguageTypeClassifier(ProbabilityClassifier):
    """Names the type of an English question by a classifier that reads only English; asks the LM about others.

    Args:
        english: A classifier trained on English.
        options: See `Options`.
    """

    def __init__(self, english: ProbabilityClassifier, options: Options) -> None:
        super().__init__()
        self.english = english
        self._options = options

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probabilities by the classifier that reads English."""
        return self.english.probabilities(question)

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the classifier or the LM names.

        Raises:
            StepFailed: If the question is not English and there is no LM, or its reply cannot be parsed.
            LMUnavailable: If the LM cannot be reached, or the classifier needs a model that is not there.
        """
        too_short_to_tell = question.isascii() and len(question.split()) <= _FEW_WORDS
        if too_short_to_tell or is_english(question):
            return self.english(question=question)
        if dspy.settings.lm is None:
            raise StepFailed("classify", f"{NOT_ENGLISH}, and there is no LM to ask for its type")
        add_step(Step("language", question, f"{NOT_ENGLISH}: the LM names its type"))
        # not an attribute, so that programs keep the predictors they were compiled and saved with
        return LMTypeClassifier(self._options)(question=question)


_FEW_WORDS = 2
"""Words in ASCII whose language nobody can tell: "lol" is taken for Dutch."""
NOT_ENGLISH = "the question is not in English, which is all that the type classifier reads"
