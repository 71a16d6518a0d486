"""Labels that were given against labels that are right: question types, routes, sub-question types."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import dspy

from typedrag.errors import NotMeasurable
from typedrag.metrics.metric import Metric, Scored, metric


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
class QuestionTypeMatch(Metric):
    """1 if the program took the question for what it is, else 0.

    Measure: `accuracy`; over many answers also `macro_f1`. The details have both labels, as
    `actual` and `given`: `confusion` makes a table of them.
    """

    name: ClassVar[str] = "question-type"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the types; `NotMeasurable` where one of the two is not known."""
        actual, given = example.get("question_type"), prediction.get("question_type")
        if actual is None:
            raise NotMeasurable("the question has no labelled type")
        if given is None:
            raise NotMeasurable("the program does not classify questions")
        value = float(actual == given)
        feedback = f"A question of type {actual}" if value else f"A question of type {actual}, taken for {given}"
        return Scored(value, feedback, {"accuracy": value}, {"actual": str(actual), "given": str(given)})

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Accuracy and macro-F1 over all answers."""
        if not scored:
            return {}
        actual, given = ([s.details[side] for s in scored] for side in ("actual", "given"))
        return {**super().summarize(scored), "macro_f1": macro_f1(actual, given)}
