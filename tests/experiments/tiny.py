"""Metrics that are small enough to count their calls, and the command line that knows them."""

from typing import ClassVar

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.lms.asking import ask
from typedrag.metrics import Metric, Scored, metric


class JudgeTinily(dspy.Signature):
    """Say whether the answer is good."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    is_good: bool = dspy.OutputField()


class _Judge(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.judge = dspy.Predict(JudgeTinily)

    def forward(self, question: str, answer: str) -> dspy.Prediction:
        return ask("tiny", self.judge, retries=0, question=question, answer=answer).prediction


@metric
class Tiny(Metric):
    """1 if the judge says so."""

    name: ClassVar[str] = "tiny"
    judged: ClassVar[bool] = True

    def __init__(self, scorer=None, bonus: float = 0.0) -> None:
        super().__init__(scorer)
        self.bonus = bonus
        self.judge = _Judge()

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        inputs = {"question": example.question, "answer": prediction.answer}
        good = self.judge(**inputs).is_good
        return Scored(float(good), "said so", {"good": good + self.bonus}, {"is_good": good})


@metric
class Length(Metric):
    """The share of 1,000 characters that an answer has, of questions of a type."""

    name: ClassVar[str] = "length"

    def require(self, example: dspy.Example, measure: str = "") -> None:
        if example.get("question_type") == "debate":
            raise NotMeasurable("debates have no length")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        self.require(example)
        share = min(1.0, len(prediction.answer) / 1000)
        return Scored(share, measures={"share": share})


class ShortIsTrue(Metric):
    """Takes long answers for wrong ones: what `truthfulness` would be if a scripted LM were to be measured by it."""

    name: ClassVar[str] = "truthfulness"
    most: ClassVar[int] = 200
    """Characters of an answer that is right."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        right = len(prediction.answer) <= self.most
        told = {"truthfulness": 2.0 * right - 1, "right": float(right), "wrong": float(not right)}
        return Scored(float(right), "It is too long to be true." * (not right), told)


if __name__ == "__main__":
    from typedrag.cli.main import main

    main()
