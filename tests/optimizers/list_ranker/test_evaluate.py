import json
from dataclasses import asdict
from math import log2

import pytest

from tests.scripted import scripted
from typedrag.datasets.richrag import Pool
from typedrag.optimizers.list_ranker.measures import evaluate_rankers
from typedrag.retrieval import NoReranker, open_reranker
from typedrag.signatures.judging import OrderPassages


def pool(number: int, labels: list[int]) -> Pool:
    rows = [{"id": f"p{n}", "text": f"text {n} of {number}", "label": label} for n, label in enumerate(labels)]
    return Pool.model_validate(
        {"id": f"q{number}", "question": f"Why {number}?", "sub_aspects": ["one"], "passages": rows, "relevant_from": 2}
    )


class ByLabel:
    """Knows the labels."""

    def __init__(self, pools):
        self.labels = {p.text: p.label for pool in pools for p in pool.passages}

    def rerank(self, query, passages, k):
        return sorted(passages, key=lambda p: -self.labels[p.text])[:k]


POOLS = [pool(n, labels) for n, labels in enumerate([[0, 1, 3], [0, 3, 1], [2, 0, 3], [0, 0, 2]] * 3)]


def test_measures_by_hand_and_differences_with_intervals():
    report = evaluate_rankers(POOLS, {"best": ByLabel(POOLS), "none": NoReranker()}, k=10)
    best, none = report.scores
    assert (report.pools, best.ranker, none.ranker) == (12, "best", "none")
    assert best.means["ndcg"].value == best.means["map"].value == pytest.approx(1)
    assert none.values["ndcg"]["q0"] == pytest.approx((1 / log2(3) + 3 / 2) / (3 + 1 / log2(3)), abs=1e-4)
    assert none.values["map"]["q2"] == pytest.approx((1 + 2 / 3) / 2, abs=1e-4)
    assert none.values["ncom"]["q0"] < best.values["ncom"]["q0"] == pytest.approx(1)
    found = {(c.baseline, c.measure): c for c in report.comparisons}
    assert set(found) == {("none", measure) for measure in ("ndcg", "map", "ncom")}
    difference = found["none", "ndcg"].difference
    assert difference.value == pytest.approx(1 - none.means["ndcg"].value) and difference.low > 0
    assert found["none", "ndcg"].p < 0.01 and difference.n == 12
    json.dumps(asdict(report))


def test_pools_without_labels_are_measured_by_what_they_cover():
    rows = [{"id": "a", "text": "x", "coverage": [0.0, 0.5]}, {"id": "b", "text": "y", "coverage": [1.0, 0.0]}]
    covered = [Pool.model_validate({"id": str(n), "question": "Why?", "passages": rows}) for n in range(3)]
    report = evaluate_rankers(covered, {"none": NoReranker()}, k=1)
    assert set(report.scores[0].means) == {"ncom"} and report.scores[0].means["ncom"].value == 0.5
    assert report.comparisons == ()


def test_pools_of_which_an_lm_s_reply_cannot_be_read_are_counted():
    torn = iter(["torn", "torn"])
    with scripted({OrderPassages: lambda _: next(torn, {"order": [3, 2, 1]})}):
        report = evaluate_rankers(POOLS[:4], {"lm-listwise": open_reranker("lm-listwise"), "none": NoReranker()})
    assert [scores.failed for scores in report.scores] == [1, 0]  # it is asked twice for each
