from itertools import permutations
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.scripted_judge import scored
from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import ELSEWHERE, Passage, Reference, Step
from typedrag.metrics import build_metric
from typedrag.metrics.metric import PredictorCall
from typedrag.metrics.ranking import (
    comprehensiveness,
    coverage_table,
    greedy_ranking,
    ncom,
    ranking_measures,
    retrieval_cycles,
)
from typedrag.metrics.similarity import rouge
from typedrag.signatures.roles import Role

labels = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3), min_size=1).filter(lambda d: any(d.values()))
rankings = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(rankings, labels, st.integers(1, 10))
def test_measures_are_those_of_their_definitions(ranked: list[str], relevance: dict[str, int], k: int) -> None:
    found = ranking_measures(ranked, relevance, k)
    relevant = {p for p, label in relevance.items() if label > 0}
    hits = [p in relevant for p in ranked]
    assert found["recall"] == pytest.approx(sum(hits[:k]) / len(relevant))
    assert found["mrr"] == pytest.approx(1 / (hits.index(True) + 1) if True in hits[:k] else 0)
    precisions = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
    assert found["map"] == pytest.approx(sum(precisions) / len(relevant))
    assert all(0 <= value <= 1 + 1e-9 for value in found.values())


@settings(max_examples=50)
@given(st.permutations("abcdefgh"), labels, st.integers(1, 8))
def test_ndcg_is_that_of_scikit_learn(ranked: list[str], relevance: dict[str, int], k: int) -> None:
    from sklearn.metrics import ndcg_score

    gains = [[relevance.get(p, 0) for p in ranked]]
    assert ranking_measures(ranked, relevance, k)["ndcg"] == pytest.approx(
        ndcg_score(gains, [[-place for place in range(len(ranked))]], k=k)
    )


@st.composite
def tables(draw: st.DrawFn) -> list[list[float]]:
    columns = draw(st.integers(1, 3))
    row = st.lists(st.sampled_from([0.0, 0.1, 0.4, 0.9]), min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=1, max_size=5))


@settings(max_examples=60)
@given(tables(), st.data())
def test_the_greedy_ranking_is_no_better_than_the_best_and_ncom_is_by_it(
    table: list[list[float]], data: st.DataObject
) -> None:
    ranking = data.draw(st.permutations(range(len(table))))[: data.draw(st.integers(1, len(table)))]
    k = len(ranking)
    best = max(comprehensiveness(order, table) for order in permutations(range(len(table)), k))
    greedy = greedy_ranking(table, k)
    assert len(greedy) == len(set(greedy)) == k
    assert comprehensiveness(greedy, table) <= best + 1e-9
    if not np.any(table):
        assert ncom(ranking, table) is None
        return
    found = ncom(ranking, table)
    assert found is not None and found >= comprehensiveness(ranking, table) / best - 1e-9
    assert ncom(greedy, table) == pytest.approx(1)


def test_a_list_can_beat_the_silver_one() -> None:
    """As equation 13 has it: 0.9 + 0.2 x (1 - 8/9) + 0.1 x (1 - 1/9) against 0.9 + 0.1."""
    table = [[0.2, 0.1], [0.9, 0.0], [0.8, 0.1]]
    found = ncom([2, 0], table)
    assert found == pytest.approx((0.9 + 0.2 / 9 + 0.8 / 9) / 1.0) and found > 1


def test_ties_go_to_the_passage_that_comes_first() -> None:
    assert greedy_ranking([[0.5, 0.5], [0.5, 0.5]], 2) == [0, 1]


def test_the_table_is_the_mean_of_both_rouges() -> None:
    passages, answers = ["leaves turn red", "the days grow shorter"], ["leaves turn red now", "days grow", "no"]
    table = coverage_table(passages, answers)
    expected = [[sum(rouge(p, a, "recall").values()) / 2 for a in answers] for p in passages]
    assert table.tolist() == expected and table[0, 0] == pytest.approx((2 / 3 + 3 / 4) / 2)
    assert coverage_table([], answers).shape == (0, 3)


def _retrieved(*ids: str, **options: Any) -> dspy.Prediction:
    metric = build_metric("retrieval", **options)
    example = dspy.Example(question="q?", passage_ids=("a", "b"))
    return metric(example, dspy.Prediction(answer="", passages=tuple(Passage(i, "text") for i in ids)))


def test_the_metric_names_what_is_missing() -> None:
    found = _retrieved("x", "b", "y", "a", k=3)
    assert found.score == 0.5 and found.details == {"missing": ["a"]} and "a" in found.feedback
    assert found.measures == pytest.approx({"recall": 0.5, "mrr": 0.5, "map": 0.5, "ndcg": 0.387}, abs=1e-3)
    assert _retrieved("b", "a").score == 1 and _retrieved().score == 0


def test_further_cutoffs_add_measures() -> None:
    metric = build_metric("retrieval", cutoffs=[1, 2])
    passages = tuple(Passage(i, "text") for i in ("x", "b", "y"))
    found = metric(dspy.Example(passage_ids=("a", "b")), dspy.Prediction(answer="", passages=passages))
    assert set(found.measures) == set(metric.measures)
    at_cutoffs = {"recall@1": 0, "recall@2": 0.5, "recall@mean": 0.25, "mrr@1": 0, "mrr@2": 0.5, "mrr@mean": 0.25}
    assert at_cutoffs.items() <= found.measures.items()
    assert "mrr@mean" not in build_metric("retrieval").measures
    for options in ({"cutoffs": [3, 0]}, {"k": 0}):
        with pytest.raises(InputError, match="a cutoff of 0 leaves no passage"):
            build_metric("retrieval", **options)


def test_an_answer_made_elsewhere_tells_no_ranking_unless_it_has_passages() -> None:
    elsewhere = (Step(ELSEWHERE, output="an engine"),)
    example = dspy.Example(passage_ids=("a",))
    with pytest.raises(NotMeasurable, match="does not tell which passages"):
        build_metric("retrieval").score(example, dspy.Prediction(answer="", steps=elsewhere, passages=()))
    told = dspy.Prediction(answer="", steps=elsewhere, passages=(Passage("a", "text"),))
    assert build_metric("retrieval").score(example, told).score == 1
    for metric in ("rewrite", "steps"):
        with pytest.raises(NotMeasurable, match="does not tell how it was searched for"):
            build_metric(metric).score(example, told)


QUERIES = (
    Step("query", "yeast", passage_ids=("x", "b", "y")),
    Step("query", "gas", passage_ids=("b", "z")),
    Step("query", "glutn"),
)


def test_what_queries_find_is_measured_before_anything_reads_it() -> None:
    example = dspy.Example(question="q?", passage_ids=("a", "b", "y"))
    ways = Step("sub-queries", steps=(Step("sub-query", steps=(Step("retrieve", "more", passage_ids=("a",)),)),))
    prediction = dspy.Prediction(answer="", steps=(Step("retrieve", "3 queries", steps=QUERIES), ways))
    found = build_metric("rewrite", k=2)(example, prediction)
    assert found.score == pytest.approx(1 / 3)  # b is found twice, x and a at once are ties: x was first
    assert build_metric("rewrite")(example, prediction).score == 1
    assert build_metric("rewrite")(example, dspy.Prediction(answer="")).score == 0


def test_who_writes_queries_hears_what_they_missed() -> None:
    texts = ("Yeast makes gas.", "Gluten holds it.")
    example = dspy.Example(question="q?", passage_ids=("a", "b"), passage_texts=texts)
    prediction = dspy.Prediction(answer="", passages=(Passage("a", "Yeast makes gas."),))
    metric = build_metric("retrieval")
    found, searcher = scored(metric, example, prediction), PredictorCall(Role.SEARCHER)
    said = metric.predictor_feedback(searcher, example, prediction, found)
    assert said == "1 of 2 needed passages were found. Not found: «Gluten holds it.»."
    assert metric.predictor_feedback(PredictorCall(Role.ANSWERER), example, prediction, found) == ""
    answers = (Reference("Bread rises by gas.", 3), Reference("By the moon.", 0))  # which are no passages
    without_texts = dspy.Example(question="q?", passage_ids=("a", "b"), references=answers)
    assert "«b»" in metric.predictor_feedback(searcher, without_texts, prediction, found)


RETRIEVE, ANSWER = Step("retrieve"), Step("answer")


@pytest.mark.parametrize(
    ("steps", "cycles"),
    [
        ((), 0),
        ((ANSWER,), 0),
        ((RETRIEVE, ANSWER), 1),
        ((RETRIEVE, ANSWER, RETRIEVE, ANSWER), 2),
        ((Step("retrieve", steps=(Step("query"), Step("query"))), ANSWER), 1),
        ((Step("sub-queries", steps=(Step("sub-query", steps=(RETRIEVE, ANSWER)),) * 3),), 1),
        ((Step("revise", steps=(RETRIEVE, ANSWER)), Step("revise", steps=(RETRIEVE, ANSWER))), 2),
    ],
)
def test_cycles(steps: tuple[Step, ...], cycles: int) -> None:
    assert retrieval_cycles(steps) == cycles
    found = build_metric("steps")(dspy.Example(), dspy.Prediction(answer="", steps=steps))
    assert found.measures == {"steps": cycles} and found.score == 1 / (1 + cycles)


def test_what_two_passages_cover_counts_once() -> None:
    """The third's weights are 1 - (0.6, 0.4): what is covered so far is the maximum, not the sum (eq. 13)."""
    assert comprehensiveness([0, 1, 2], [[0.6, 0.2], [0.4, 0.4], [0.0, 1.0]]) == pytest.approx(0.8 + 0.4 + 0.6)


def test_repeated_unknown_and_absent_passages() -> None:
    relevance = {"a": 1, "b": 1}
    assert ranking_measures(["x", "x", "a"], relevance, k=2)["recall"] == 0.5
    assert ranking_measures(["a", "x", "a"], relevance)["mrr"] == 1
    assert ranking_measures([], relevance) == {"recall": 0, "mrr": 0, "map": 0, "ndcg": 0}
    with pytest.raises(ValueError, match="relevant"):
        ranking_measures(["a"], {"a": 0})


def test_lists_that_are_none() -> None:
    with pytest.raises(ValueError, match="twice"):
        ncom([0, 0], [[0.5], [0.5]])
    assert greedy_ranking([[0.5]], 3) == [0]
