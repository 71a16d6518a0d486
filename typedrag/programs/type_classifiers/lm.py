"""The make that asks the LM."""

from __future__ import annotations

import dspy

from typedrag.asking import ask
from typedrag.programs.options import Options
from typedrag.programs.type_classifiers.classifying import classified
from typedrag.signatures import ClassifyQuestion


class LMTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the LM names.

        Raises:
            StepFailed: If its reply cannot be parsed.
            LMUnavailable: If it cannot be reached.
        """
        reply = ask("classify", self.classify, retries=self._retries, question=question)
        return classified(question, reply.prediction.question_type, None, reply.seconds, reply.usage)
