"""Predicted labels and queries against right ones: question types, routes, sub-question types, sub-queries."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.extras import import_extras
from typedrag.core.question_types import QuestionType
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric
from typedrag.metrics.overlap import token_f1


def macro_f1(actual: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 of all labels that occur in either; a label that is never right has 0."""
    from sklearn.metrics import f1_score

    return float(f1_score(*_paired(actual, predicted), average="macro", zero_division=0.0))


@dataclass(frozen=True)
class ConfusionTable:
    """The counts of each right label (row) with each predicted label (column)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def mistakes(self) -> list[tuple[str, str, int]]:
        """The right label, the wrong one and the count of each mistake, most frequent first."""
        cells = [
            (right, predicted, count)
            for right, row in zip(self.labels, self.counts, strict=True)
            for predicted, count in zip(self.labels, row, strict=True)
            if count and right != predicted
        ]
        return sorted(cells, key=lambda cell: -cell[2])


def confusion(actual: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None = None) -> ConfusionTable:
    """The confusion table of labels; its rows and columns are by default all that occur, in alphabetical order."""
    from sklearn.metrics import confusion_matrix

    actual, predicted = _paired(actual, predicted)
    order = sorted({*actual, *predicted}) if labels is None else [str(label) for label in labels]
    if unknown := {*actual, *predicted} - set(order):
        raise ValueError(f"not among the labels: {', '.join(sorted(unknown))}")
    with warnings.catch_warnings():
        # scikit-learn warns about a table of one label
        warnings.filterwarnings("ignore", message="A single label", category=UserWarning)
        counts = confusion_matrix(actual, predicted, labels=order)
    return ConfusionTable(tuple(order), tuple(tuple(int(c) for c in row) for row in counts))


def _paired(actual: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], list[str]]:
    # plain strings: NumPy truncates the members of a StrEnum in an array
    if len(actual) != len(predicted) or not actual:
        raise ValueError(f"{len(actual)} right labels and {len(predicted)} given ones do not compare")
    return [str(label) for label in actual], [str(label) for label in predicted]


@metric
class LabelMatch(Metric):
    """1 if the program's label is right, else 0.

    Measure: `accuracy`; over many answers also `macro_f1`. The details have both labels, as
    `actual` and `given`: `confusion` makes a table of them. Feedback is for the predictor that
    outputs the label.

    Args:
        field: The field of the label in example and prediction, such as `route`.
        definitions: The definition of each label, as the end of a sentence.
    """

    name: ClassVar[str] = "label"
    measures = ("accuracy",)

    field: str = "label"
    definitions: Mapping[str, str] | None = None

    def require(self, example: dspy.Example, measure: str = "") -> None:
        if example.get(self.field) is None:
            raise NotMeasurable(f"the question has no labelled {self.field.replace('_', ' ')}")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        self.require(example)
        what, actual, predicted = self.field.replace("_", " "), str(example[self.field]), prediction.get(self.field)
        if predicted is None or predicted == "":
            raise NotMeasurable(f"the program names no {what}")
        predicted = str(predicted)
        if actual == predicted:
            feedback = f"The {what} is {actual}, as it was named."
        else:
            known = self.definitions or {}
            defined = (f"{label}: {known[label]}." for label in (actual, predicted) if label in known)
            feedback = " ".join((f"The {what} is {actual}, taken for {predicted}.", *defined))
        value = float(actual == predicted)
        return Scored(value, feedback, {"accuracy": value}, {"actual": actual, "given": predicted})

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        return scored.feedback if self.field in call.outputs else ""

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        actual, predicted = ([s.details[side] for s in scored] for side in ("actual", "given"))
        return {"macro_f1": macro_f1(actual, predicted)}


@metric
class QuestionTypeMatch(LabelMatch):
    """1 if the program named the right question type, else 0; see `LabelMatch`."""

    name: ClassVar[str] = "question-type"

    def __init__(self, scorer: dspy.LM | None = None) -> None:
        definitions = {t.value: f"a question that {t.definition}, such as «{t.example}»" for t in QuestionType}
        super().__init__(scorer, field="question_type", definitions=definitions)


def query_match(written: Sequence[str], expected: Sequence[str]) -> float:
    """The mean word F1 of written and expected queries, paired one to one so that the sum is highest; others count as
    0."""
    if not written or not expected:
        return 0.0
    with import_extras("scipy"):
        from scipy.optimize import linear_sum_assignment

    table = [[token_f1(query, [other]) for other in expected] for query in written]
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(sum(table[r][c] for r, c in zip(rows, columns, strict=True)) / max(len(written), len(expected)))


@metric
class QueryMatch(Metric):
    """The match of a program's queries with the example's; see `query_match`. Measure: `query_match`.

    Args:
        field: The field of example and prediction: a query, or a list of queries.
    """

    name: ClassVar[str] = "query-match"
    measures = ("query_match",)

    field: str = "sub_queries"

    def require(self, example: dspy.Example, measure: str = "") -> None:
        if not example.get(self.field):
            raise NotMeasurable(f"the question has no {self.field} to compare with")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        self.require(example)
        written = prediction.get(self.field)
        if written is None:
            raise NotMeasurable(f"the program names no {self.field}")
        plain = (getattr(value, "root", value) for value in (example[self.field], written))
        expected, own = ([v] if isinstance(v, str) else [str(text) for text in v] for v in plain)
        value = query_match(own, expected)
        return Scored(value, f"Wanted: {listed(expected, most=None)}. Written: {listed(own)}.", {"query_match": value})

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        return scored.feedback if self.field in call.outputs else ""
