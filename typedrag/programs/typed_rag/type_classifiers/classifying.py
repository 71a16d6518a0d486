"""The base of type classifiers."""

from __future__ import annotations

from collections.abc import Mapping

import dspy

from typedrag.lms.asking import Reply
from typedrag.lms.logprobs import label_probabilities
from typedrag.lms.trace import Stopwatch, add_step
from typedrag.question_types import QuestionType
from typedrag.records import Step, Usage


class ProbabilityClassifier(dspy.Module):
    """Names a question's type by probabilities of all types, without an LM."""

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type that it knows, summing to 1; each classifier overrides this.

        Raises:
            LMUnavailable: If it needs a model that is not there.
        """
        raise NotImplementedError

    def forward(self, question: str) -> dspy.Prediction:
        """The likeliest type; see `probabilities`."""
        watch = Stopwatch()
        best, probability = max(self.probabilities(question).items(), key=lambda pair: pair[1])
        return classified(question, best, probability, watch.seconds)


def classified(
    question: str,
    question_type: QuestionType,
    probability: float | None = None,
    seconds: float = 0.0,
    usage: Usage | None = None,
    *,
    by: str = "",
) -> dspy.Prediction:
    """The prediction of a type classifier, or of somebody else (`by`) who knows the type; recorded as a step."""
    sure = f" (by {by})" if by else "" if probability is None else f" ({probability:.2f})"
    add_step(Step("classify", question, f"{question_type}{sure}", seconds=seconds, usage=usage or Usage()))
    return dspy.Prediction(question_type=question_type, probability=probability)


def classified_by_lm(question: str, reply: Reply) -> dspy.Prediction:
    """The prediction from an LM's reply, with the type's probability if the LM's server gives it."""
    question_type, types = reply.prediction.question_type, types_said(reply)
    return classified(question, question_type, types[question_type] if types else None, reply.seconds, reply.usage)


def types_said(reply: Reply) -> dict[QuestionType, float] | None:
    """The LM's probability of each type, summing to 1; None if its server does not give any."""
    prediction = reply.prediction
    by_label = label_probabilities(prediction.get("logprobs"), prediction.question_type, list(QuestionType))
    return {QuestionType(label): probability for label, probability in by_label.items()} if by_label else None
