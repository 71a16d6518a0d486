"""Grades on short scales: equivalence, relevance, faithfulness (PreQRAG, section 3.1, appendix C.1), and correctness
(LiveRAG), which combines the first two and reads the first 300 words of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.lms.asking import ask
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.metrics.overlap import gold_texts
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import number_passages
from typedrag.signatures.judging import (
    GradeCorrectness,
    GradeEquivalence,
    GradeEquivalencePlainly,
    GradeFaithfulness,
    GradeFaithfulnessPlainly,
    GradeRelevance,
    GradeRelevancePlainly,
)
from typedrag.text.words import first_words

_PASSAGE_WORDS = 200
"""The words of a passage that a judge sees if it is not known how many the program saw."""


@dataclass(eq=False, repr=False)
class Grade(Metric):
    """A judge's grade on a scale.

    The score is the grade's place on the scale, from 0 for the worst to 1 for the best. Measures:
    `grade`, as on the scale, and `normalized`, the grade divided by the best one, whose mean is the
    value that PreQRAG reports (section 3.1); it is negative for grades below 0.

    Args:
        answer_words: The number of words of an answer that are graded; None for all.
        retries: How often to ask again for a reply that cannot be parsed.
        plain: Whether the judge is asked as in the paper (PreQRAG, appendix C.1).
    """

    judged = True
    measures = ("grade", "normalized")
    signature: ClassVar[type[dspy.Signature]]
    plain_signature: ClassVar[type[dspy.Signature] | None] = None
    meanings: ClassVar[Mapping[int, str]]

    answer_words: int | None = None
    retries: int = 2
    plain: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plain and self.plain_signature is None:
            raise InputError(f"the paper of {self.name} has no prompt of its own here", "Leave out plain")
        self.give = predictor((self.plain and self.plain_signature) or self.signature)

    def judge_inputs(self, example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Any]:
        if self.needs is None:
            return {}
        texts = gold_texts(example)
        return {"gold_answers": texts if example.get("answers") else texts[:1]}  # references are long: one

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        answer = prediction.answer
        if self.answer_words:
            answer = first_words(" ".join(answer.split()), self.answer_words)
        inputs = {**self.judge_inputs(example, prediction), "question": example.question, "answer": answer}
        grade: int = ask("grade", self.give, retries=self.retries, **inputs).prediction.grade
        worst, best = min(self.meanings), max(self.meanings)
        return Scored(
            score=(grade - worst) / (best - worst),
            feedback=f"{self.name.capitalize()} {grade}, on a scale from {worst} to {best}: {self.meanings[grade]}."
            + "".join(f" A right answer says: {gold}" for gold in inputs.get("gold_answers", [])),
            measures={"grade": float(grade), "normalized": grade / best},
        )


@metric
class Equivalence(Grade):
    """Does the answer mean the same as a gold answer, or else as the best reference?"""

    name = "equivalence"
    needs = gold_texts
    signature = GradeEquivalence
    plain_signature = GradeEquivalencePlainly
    meanings: ClassVar[Mapping[int, str]] = {
        0: "the answer does not say what a right answer says",
        1: "the answer says a part of what a right answer says, or says it imprecisely",
        2: "the answer says what a right answer says",
    }


@metric
class Relevance(Grade):
    """Does the answer address the question, be it right or wrong?"""

    name = "relevance"
    signature = GradeRelevance
    plain_signature = GradeRelevancePlainly
    meanings: ClassVar[Mapping[int, str]] = {
        0: "the answer does not address the question",
        1: "the answer addresses a part of the question, is vague, or strays from it",
        2: "the answer addresses the question directly and in full",
    }


@metric
class Faithfulness(Grade):
    """Do the passages that the answer was written from support it?

    Args:
        passage_words: The number of words of a passage that the judge sees; by default as many as the program's LM.
    """

    name = "faithfulness"
    signature = GradeFaithfulness
    plain_signature = GradeFaithfulnessPlainly
    meanings: ClassVar[Mapping[int, str]] = {
        -1: "the passages support nothing of the answer",
        0: "the passages support a part of the answer",
        1: "the passages support all of the answer",
    }

    passage_words: int | None = None

    def judge_inputs(self, example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Any]:
        passages = prediction.get("passages")
        if not passages:
            raise NotMeasurable("faithfulness needs the passages that an answer was written from, and it has none")
        words = self.passage_words or prediction.get("passage_words") or _PASSAGE_WORDS
        return {"passages": number_passages(passages, words)}


@metric
class Correctness(Grade):
    """LiveRAG's correctness: is the answer right, and does all of it bear on the question?"""

    name = "correctness"
    needs = gold_texts
    signature = GradeCorrectness
    meanings: ClassVar[Mapping[int, str]] = {
        -1: "the answer is wrong",
        0: "the answer declines to answer",
        1: "the answer is right, but a part of it does not bear on the question",
        2: "the answer is right and keeps to the question",
    }
