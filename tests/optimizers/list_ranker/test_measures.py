import json
from dataclasses import asdict
from math import log2

import pytest

from tests.scripted import scripted
from typedrag.core.errors import InputError
from typedrag.datasets.richrag import Pool
from typedrag.optimizers.list_ranker.measures import evaluate_rankers, graded_table, silver_list, utility_table
from typedrag.retrieval import NoReranker, open_reranker
from typedrag.signatures.judging import OrderPassages


def of_passages(passages, **fields) -> Pool:
    rows = [{"id": str(n), **passage} for n, passage in enumerate(passages)]
    return Pool.model_validate({"id": "q", "question": "Why?", "passages": rows, **fields})


def pool(number: int, labels: list[int]) -> Pool:
    rows = [{"text": f"text {n} of {number}", "label": label} for n, label in enumerate(labels)]
    return of_passages(rows, id=f"q{number}", question=f"Why {number}?", sub_aspects=["one"], relevant_from=2)


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
    rows = [{"text": "x", "coverage": [0.0, 0.5]}, {"text": "y", "coverage": [1.0, 0.0]}]
    covered = [of_passages(rows, id=str(n)) for n in range(3)]
    report = evaluate_rankers(covered, {"none": NoReranker()}, k=1)
    assert set(report.scores[0].means) == {"ncom"} and report.scores[0].means["ncom"].value == 0.5
    assert report.comparisons == ()


def test_pools_of_which_an_lm_s_reply_cannot_be_read_are_counted():
    torn = iter(["torn", "torn"])
    with scripted({OrderPassages: lambda _: next(torn, {"order": [3, 2, 1]})}):
        report = evaluate_rankers(POOLS[:4], {"lm-listwise": open_reranker("lm-listwise"), "none": NoReranker()})
    assert [scores.failed for scores in report.scores] == [1, 0]  # it is asked twice for each


def test_a_coverage_counts_before_sub_answers_and_those_before_labels():
    texts = [{"text": "old yeast makes gas", "label": 0}, {"text": "flour is heavy", "label": 2}]
    assert utility_table(of_passages(texts)).tolist() == [[0.0], [1.0]]
    answered = of_passages(texts, sub_answers=["old yeast", "heavy flour"])
    assert utility_table(answered)[0].tolist() == [1.0, 0.0]  # ROUGE-2 and ROUGE-L recall of the first: 1 and 1
    assert utility_table(answered)[1].tolist() == [0.0, 0.25]  # of the second: no pair of words, one word of two
    covered = of_passages([{**t, "coverage": [0.1 * n, 0.5]} for n, t in enumerate(texts)], sub_answers=["x y"])
    assert utility_table(covered).tolist() == [[0.0, 0.5], [0.1, 0.5]]
    with pytest.raises(InputError, match="pool 'q' says nothing"):
        utility_table(of_passages([{"text": "a"}, {"text": "b", "label": 0}]))


def test_sub_answers_are_covered_in_any_script():
    texts = [{"text": "Кошки спят весь день."}, {"text": "Старые дрожжи выделяют мало газа."}]
    table = utility_table(of_passages(texts, sub_answers=["дрожжи выделяют газ", "мало газа"]))
    assert table[0].tolist() == [0.0, 0.0] and table[1].all() and silver_list(table, 2) == [1]


def test_the_silver_list_by_hand():
    # first the third (0.5 + 0.3); then w = (1 - 5/8, 1 - 3/8) = (3/8, 5/8):
    # the first adds 0.6 * 3/8 = 0.225, the second 0.4 * 5/8 = 0.25
    table = [[0.6, 0.0], [0.0, 0.4], [0.5, 0.3]]
    assert silver_list(table, 2) == [2, 1]
    assert silver_list(table, 1) == [2]


def test_a_second_passage_of_one_way_to_answer_is_worth_nothing_more():
    assert silver_list([[0.9], [0.8], [0.0]], 3) == [0]
    assert silver_list([[0.0, 0.0]], 3) == []


def test_better_grades_come_first_and_repetitions_later():
    texts = ["let it rise for long", "let it rise for long", "buy fresh old yeast", "use warm milk instead", "no idea"]
    table = graded_table(texts, [3, 3, 3, 2, 0], relevant_from=2)
    assert table.shape == (5, 3)
    assert silver_list(table, 10) == [0, 2, 3, 1]
