"""The base of type classifiers, and those that ask: the LM, or the dataset's labels.

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with `question_type` and
`probability`, 0 to 1, or None if it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

import dspy

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, StepFailed
from typedrag.core.question_types import QuestionType, parse_question_type
from typedrag.core.records import Step, Usage
from typedrag.lms.asking import ask, label_probabilities, logprob_settings, with_settings
from typedrag.lms.trace import Stopwatch, add_step
from typedrag.programs.options import Options
from typedrag.signatures.typed_rag import ClassifyQuestion
from typedrag.text.language import is_english

_FEW_WORDS = 2
"""Words in ASCII whose language nobody can tell: "lol" is taken for Dutch."""
NOT_ENGLISH = "the question is not in English, which is all that the type classifier reads"


class ProbabilityClassifier(dspy.Module):
    """Names a question's type by probabilities of all types, without an LM."""

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type that it knows, summing to 1; each classifier overrides this."""
        raise NotImplementedError

    def forward(self, question: str) -> dspy.Prediction:
        """The likeliest type; see `probabilities`."""
        watch = Stopwatch()
        best, probability = max(self.probabilities(question).items(), key=lambda pair: pair[1])
        return record_type(question, best, probability, watch.seconds)


def record_type(
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


class LMTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM.

    The probability is the LM's own for the type among all types, if its server gives it.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the LM names."""
        predictor = with_settings(self.classify, logprob_settings())
        reply = ask("classify", predictor, retries=self._retries, question=question)
        question_type = reply.prediction.question_type
        types = label_probabilities(reply.prediction.get("logprobs"), question_type, list(QuestionType))
        return record_type(question, question_type, types[question_type] if types else None, reply.seconds, reply.usage)


class OracleTypeClassifier(dspy.Module):
    """Names the type that a question's dataset labels."""

    def forward(self, question: str) -> dspy.Prediction:
        """The type."""
        if not (labelled := call_context().labels.get("question_type")):
            raise InputError(
                "the type classifier is an oracle, but the question has no labelled type",
                "Evaluate it on a dataset with a field question_type",
            )
        return record_type(question, parse_question_type(labelled), by="the dataset")


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
        """The type that the classifier or the LM names."""
        too_short_to_tell = question.isascii() and len(question.split()) <= _FEW_WORDS
        if too_short_to_tell or is_english(question):
            return self.english(question=question)
        if dspy.settings.lm is None:
            raise StepFailed("classify", f"{NOT_ENGLISH}, and there is no LM to ask for its type")
        add_step(Step("language", question, f"{NOT_ENGLISH}: the LM names its type"))
        # not an attribute, so that programs keep the predictors they were compiled and saved with
        return LMTypeClassifier(self._options)(question=question)
