"""Written queries against expected ones: sub-queries of a question, or its next query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.extras import importing
from typedrag.metrics.feedback import PredictorCall, listed
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.metrics.text_overlap import token_f1


def query_match(written: Sequence[str], expected: Sequence[str]) -> float:
    """The mean word F1 of written and expected queries, paired one to one so that the sum is highest.

    Queries without a partner, on either side, count as 0.

    Example:
        >>> query_match(["How long is it?", "When was it built?"], ["When was it built?", "How long is it?"])
        1.0
        >>> query_match(["When was it built?"], ["When was it built?", "How long is it?"])
        0.5
    """
    if not written or not expected:
        return 0.0
    with importing("scipy"):
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
        """Raise `NotMeasurable` if the example has no queries."""
        if not example.get(self.field):
            raise NotMeasurable(f"the question has no {self.field} to compare with")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the queries; raise `NotMeasurable` if example or prediction has none."""
        self.require(example)
        written = prediction.get(self.field)
        if written is None:
            raise NotMeasurable(f"the program names no {self.field}")
        expected, own = _texts(example[self.field]), _texts(written)
        value = query_match(own, expected)
        return Scored(value, f"Wanted: {listed(expected, most=None)}. Written: {listed(own)}.", {"query_match": value})

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The general feedback, for the predictor that writes the queries."""
        return scored.feedback if self.field in call.outputs else ""


def _texts(value: Any) -> list[str]:
    value = getattr(value, "root", value)
    return [value] if isinstance(value, str) else [str(text) for text in value]
