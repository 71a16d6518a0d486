from __future__ import annotations

import dspy
import pytest

from typedrag.core.errors import NotMeasurable
from typedrag.metrics import QueryMatch, build_metric
from typedrag.metrics.labels import query_match
from typedrag.signatures.fields import NextQuestion, Parts


def test_pairs_are_chosen_for_the_highest_sum_whatever_the_order():
    wanted = ["When did Lucie Rie move?", "What is Lucie Rie known for?"]
    assert query_match(list(reversed(wanted)), wanted) == 1
    # in their order they would be worth (0.5 + 2/3) / 2
    assert query_match(["x y z", "y"], ["y", "y z"]) == pytest.approx((0.8 + 1) / 2)


def test_what_has_no_partner_counts():
    assert query_match(["where is it"], ["where is it", "who made it", "when"]) == pytest.approx(1 / 3)
    assert query_match(["where is it", "more", "and more"], ["where is it"]) == pytest.approx(1 / 3)
    assert query_match([], ["where"]) == 0


def test_a_query_or_a_list_of_them_in_the_types_of_the_signatures():
    wanted = dspy.Example(sub_queries=Parts(["Who is he?", "Where is he?"]))
    assert QueryMatch()(wanted, dspy.Prediction(sub_queries=["Where is he?", "Who is he?"])).score == 1
    one = build_metric("query-match", field="query")
    scored = one(dspy.Example(query=NextQuestion("Who is he?")), dspy.Prediction(query=NextQuestion("Who was he?")))
    assert scored.measures == {"query_match": pytest.approx(2 / 3)}
    assert "«Who is he?»" in scored.feedback and "«Who was he?»" in scored.feedback
    with pytest.raises(NotMeasurable):
        one(dspy.Example(question="x"), dspy.Prediction(query="y"))
    with pytest.raises(NotMeasurable):
        one(dspy.Example(query="x"), dspy.Prediction())
