"""Labels that were given against labels that are right: question types, routes, sub-question types."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import dspy

from typedrag.errors import NotMeasurable
from typedrag.metrics.feedback import PredictorCall
from typedrag.metrics.judges.judgments import Judgments
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.question_types import QuestionType


def accuracy(actual: Sequence[str], given: Sequence[str]) -> float:
    """The share of labels that are right.

    Raises:
        ValueError: If there are none, or not as many of the one as of the other.

    Example:
        >>> accuracy(["reason", "debate", "reason"], ["reason", "reason", "reason"])
        0.6666666666666666
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_checked(actual, given)))


def macro_f1(actual: Sequence[str], given: Sequence[str]) -> float:
    """The mean of the labels' F1, of all that occur in either; a label that is never right has 0.

    Raises:
        ValueError: If there are none, or not as many of the one as of the other.

    Example:
        >>> macro_f1(["reason", "debate", "reason"], ["reason", "reason", "reason"])
        0.4
    """
    from sklearn.metrics import f1_score

    return float(f1_score(*_checked(actual, given), average="macro", zero_division=0.0))


@dataclass(frozen=True)
class ConfusionTable:
    """How often each label was given for each.

    Attributes:
        labels: In the order of rows and columns.
        counts: One row for each label that is right, one column for each that was given.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def mistakes(self) -> list[tuple[str, str, int]]:
        """What was taken for what and how often, the most frequent first.

        Example:
            >>> confusion(["a", "b", "b"], ["a", "a", "a"]).mistakes()
            [('b', 'a', 2)]
        """
        pairs = Counter(
            {
                (right, given): count
                for right, row in zip(self.labels, self.counts, strict=True)
                for given, count in zip(self.labels, row, strict=True)
                if count and right != given
            }
        )
        return [(right, given, count) for (right, given), count in pairs.most_common()]


def confusion(actual: Sequence[str], given: Sequence[str], labels: Sequence[str] | None = None) -> ConfusionTable:
    """How often each label was given for each.

    Args:
        actual: The labels that are right.
        given: The labels that were given, in the same order.
        labels: Of rows and columns; by default all that occur, by name.

    Raises:
        ValueError: If there are none, not as many of the one as of the other, or one that is not
            among `labels`.

    Example:
        >>> confusion(["reason", "debate", "reason"], ["reason", "reason", "reason"])
        ConfusionTable(labels=('debate', 'reason'), counts=((0, 1), (0, 2)))
    """
    from sklearn.metrics import confusion_matrix

    actual, given = _checked(actual, given)
    order = sorted({*actual, *given}) if labels is None else [str(label) for label in labels]
    if unknown := {*actual, *given} - set(order):
        raise ValueError(f"not among the labels: {', '.join(sorted(unknown))}")
    with warnings.catch_warnings():
        # of a table of one label scikit-learn says that it might need more
        warnings.filterwarnings("ignore", message="A single label", category=UserWarning)
        counts = confusion_matrix(actual, given, labels=order)
    return ConfusionTable(tuple(order), tuple(tuple(int(c) for c in row) for row in counts))


def _checked(actual: Sequence[str], given: Sequence[str]) -> tuple[list[str], list[str]]:
    # plain strings: NumPy cuts the members of a StrEnum in an array of its own making
    if len(actual) != len(given) or not actual:
        raise ValueError(f"{len(actual)} right labels and {len(given)} given ones do not compare")
    return [str(label) for label in actual], [str(label) for label in given]


@metric
class LabelMatch(Metric):
    """1 if the program gave the right label, else 0.

    Measure: `accuracy`; over many answers also `macro_f1`. The details have both labels, as
    `actual` and `given`: `confusion` makes a table of them. Feedback is for the predictor that
    gives the label.

    Args:
        field: Of the example and of the prediction, such as `route`.
        definitions: What tells the labels apart, as the end of a sentence each.
    """

    name: ClassVar[str] = "label"
    measures = ("accuracy",)

    field: str = "label"
    definitions: Mapping[str, str] | None = None

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """`NotMeasurable` if the example has no such label."""
        if example.get(self.field) is None:
            raise NotMeasurable(f"the question has no labelled {_as_words(self.field)}")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the labels; `NotMeasurable` where one of the two is not known."""
        self.require(example)
        actual, given = str(example[self.field]), prediction.get(self.field)
        if given is None or given == "":
            raise NotMeasurable(f"the program names no {_as_words(self.field)}")
        value = float(actual == str(given))
        details = {"actual": actual, "given": str(given)}
        return Scored(value, self._in_words(actual, str(given)), {"accuracy": value}, details)

    def feedback_for(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The same as for all, to the predictor that gives the label."""
        return scored.feedback if self.field in call.outputs else ""

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Macro-F1: `macro_f1`."""
        actual, given = ([s.details[side] for s in scored] for side in ("actual", "given"))
        return {"macro_f1": macro_f1(actual, given)}

    def _in_words(self, actual: str, given: str) -> str:
        what = _as_words(self.field)
        if actual == given:
            return f"The {what} is {actual}, as it was named."
        said = [f"The {what} is {actual}, taken for {given}."]
        known = self.definitions or {}
        said += [f"{label}: {known[label]}." for label in (actual, given) if label in known]
        return " ".join(said)


@metric
class QuestionTypeMatch(LabelMatch):
    """1 if the program took the question for what it is, else 0; see `LabelMatch`."""

    name: ClassVar[str] = "question-type"

    def __init__(self, scorer: dspy.LM | None = None, judgments: Judgments | None = None) -> None:
        definitions = {t.value: f"a question that {t.definition}, such as «{t.example}»" for t in QuestionType}
        super().__init__(scorer, judgments, field="question_type", definitions=definitions)  # type: ignore[arg-type]


def _as_words(field: str) -> str:
    return field.replace("_", " ")
