"""The base of type classifiers."""

from __future__ import annotations

from collections.abc import Mapping

import dspy

from typedrag.lms.asking import Reply
from typedrag.lms.token_probabilities import label_probabilities
from typedrag.lms.trail import Stopwatch, record
from typedrag.question_types import QuestionType
from typedrag.records import Step, Usage
from typedrag.texts.words import ends_in_question_mark


class ProbabilityClassifier(dspy.Module):
    """Names a question's type by probabilities of all types, without an LM."""

    reads_english_only: bool = False
    """Whether it was trained on English only, and is of no use for other languages."""

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type that it knows, summing to 1; each classifier overrides this.

        Raises:
            LMUnavailable: If it needs a model that is not there.
        """
        raise NotImplementedError

    def forward(self, question: str) -> dspy.Prediction:
        """The likeliest type; see `probabilities`. A text that ends in a question mark is a question."""
        watch = Stopwatch()
        best, probability = likeliest(question, self.probabilities(question))
        return classified(question, best, probability, watch.seconds)


def asked(question: str, probabilities: Mapping[QuestionType, float]) -> Mapping[QuestionType, float]:
    """The probabilities, without `not-a-question` if the text ends in a question mark.

    Only seven of the 3,573 non-questions of NF-CATS end in one, since they quote a question; by n-grams
    alone, 32 of the 784 questions of Wiki-NFQA would be answered as remarks.

    Example:
        >>> asked("Is it?", {QuestionType.NOT_A_QUESTION: 0.5, QuestionType.DEBATE: 0.375, QuestionType.REASON: 0.125})
        {<QuestionType.DEBATE: 'debate'>: 0.75, <QuestionType.REASON: 'reason'>: 0.25}
    """
    left = {t: p for t, p in probabilities.items() if t is not QuestionType.NOT_A_QUESTION}
    if not ends_in_question_mark(question) or not (total := sum(left.values())):
        return probabilities
    return {t: p / total for t, p in left.items()}


def likeliest(question: str, probabilities: Mapping[QuestionType, float]) -> tuple[QuestionType, float]:
    """The likeliest type and its probability, by `asked`.

    Example:
        >>> likeliest("Is it?", {QuestionType.NOT_A_QUESTION: 0.5, QuestionType.DEBATE: 0.5})
        (<QuestionType.DEBATE: 'debate'>, 1.0)
    """
    left = asked(question, probabilities)
    return max(left.items(), key=lambda pair: pair[1])


def classified(
    question: str, question_type: QuestionType, probability: float | None, seconds: float, usage: Usage | None = None
) -> dspy.Prediction:
    """The prediction of a type classifier; recorded as a step."""
    sure = "" if probability is None else f" ({probability:.2f})"
    record(Step("classify", question, f"{question_type}{sure}", seconds=seconds, usage=usage or Usage()))
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
