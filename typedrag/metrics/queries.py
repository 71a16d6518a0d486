"""Queries that were written against those that others wrote: sub-queries of a question, or its next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dspy

from typedrag.errors import NotMeasurable
from typedrag.metrics.feedback import PredictorCall, listed
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.metrics.text_overlap import token_f1


def query_match(written: Sequence[str], wanted: Sequence[str]) -> float:
    """The word F1 of queries and those that were wanted, each paired with one other so that the sum is highest.

    What is left without a partner, on either side, counts as 0.

    Example:
        >>> query_match(["How long is it?", "When was it built?"], ["When was it built?", "How long is it?"])
        1.0
        >>> query_match(["When was it built?"], ["When was it built?", "How long is it?"])
        0.5
    """
    if not written or not wanted:
        return 0.0
    from scipy.optimize import linear_sum_assignment

    table = [[token_f1(query, [other]) for other in wanted] for query in written]
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(sum(table[r][c] for r, c in zip(rows, columns, strict=True)) / max(len(written), len(wanted)))


@metric
class QueryMatch(Metric):
    """How far the queries that a program wrote are those that were wanted; see `query_match`. Measure: `query_match`.

    Args:
        field: Of the example and of the prediction: a query, or a list of them.
    """

    name: ClassVar[str] = "query-match"
    measures = ("query_match",)

    field: str = "sub_queries"

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """`NotMeasurable` if no query is wanted."""
        if not example.get(self.field):
            raise NotMeasurable(f"the question has no {self.field} to compare with")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare with the example's; `NotMeasurable` where one of the two has none."""
        self.require(example)
        written = prediction.get(self.field)
        if written is None:
            raise NotMeasurable(f"the program names no {self.field}")
        wanted, found = _texts(example[self.field]), _texts(written)
        value = query_match(found, wanted)
        return Scored(value, f"Wanted: {listed(wanted, most=None)}. Written: {listed(found)}.", {"query_match": value})

    def feedback_for(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The same as for all, to the predictor that writes them."""
        return scored.feedback if self.field in call.outputs else ""


def _texts(value: Any) -> list[str]:
    value = getattr(value, "root", value)
    return [value] if isinstance(value, str) else [str(text) for text in value]
