"""A cheap type classifier, with an expensive one for questions that it is unsure of."""

from __future__ import annotations

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.trail import fall_back, record
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.by_language import NOT_ENGLISH, beyond
from typedrag.records import Step


class CascadeTypeClassifier(dspy.Module):
    """Names a question's type by one classifier, and by another if the first is unsure.

    If the second one fails, the first one's type is used. If the first was trained on English, questions
    in other languages go to the second one only.

    Args:
        first: Asked about every question; one that gives a probability.
        second: Asked if the first one's probability is unknown or below the option `type_threshold`.
        options: See `Options`.
    """

    def __init__(self, first: dspy.Module, second: dspy.Module, options: Options) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self._threshold = options.type_threshold

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the first or the second one names.

        Raises:
            StepFailed: If the first one fails, or none reads the question's language.
            LMUnavailable: If one of them needs a model that cannot be used.
        """
        if beyond(self.first, question):
            if beyond(self.second, question):
                raise StepFailed("classify", NOT_ENGLISH)
            record(Step("language", question, f"{NOT_ENGLISH}: the second one of the cascade names its type"))
            return self.second(question=question)
        prediction = self.first(question=question)
        if prediction.probability is not None and prediction.probability >= self._threshold:
            return prediction
        try:
            return self.second(question=question)
        except StepFailed as failure:
            fall_back(failure, f"taken as {prediction.question_type}")
            return prediction
