"""The type classifier that asks the LM."""

from __future__ import annotations

import dspy

from typedrag.lms.asking import Reply, ask, with_settings
from typedrag.lms.logprobs import logprob_settings
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.classifying import classified_by_lm
from typedrag.signatures import ClassifyQuestion


class LMTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM.

    The probability is the LM's own for the type among all types, if its server gives it.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the LM names, as `named` reads it from the reply.

        Raises:
            StepFailed: If its reply cannot be parsed.
            LMUnavailable: If the LM cannot be used.
        """
        predictor = with_settings(self.classify, logprob_settings())
        reply = ask("classify", predictor, retries=self._retries, question=question)
        return self.named(question, reply)

    def named(self, question: str, reply: Reply) -> dspy.Prediction:
        """The prediction from a reply."""
        return classified_by_lm(question, reply)
