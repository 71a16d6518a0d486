import pytest

from tests.experiments.runs import question, run
from typedrag.experiments.results import summarize
from typedrag.metrics import Metric


def linkage(*questions):
    summary = summarize(run("rag", *questions), {"linkage": Metric()})
    return summary.overall.metrics["linkage"]


def test_a_question_without_an_answer_counts_as_a_wrong_one_beside_the_mean_of_those_answered():
    found = linkage(*(question(n, {"mrr": 0.5, "rank": 2.0}) for n in range(3)), question(3, answer=None))
    assert found.measures["mrr"] == pytest.approx(3 * 0.5 / 4)
    assert found.answered == {"mrr": 0.5}
    assert found.measures["rank"] == 2.0  # no rank is that of a wrong answer
    assert (found.n, found.failed) == (3, 0)


def test_a_judge_that_failed_and_a_question_that_cannot_be_measured_count_nothing():
    found = linkage(question(0, {"mrr": 0.5}), question(1, judge_failed=True), question(2, measurable=False))
    assert found.measures["mrr"] == 0.5
    assert (found.answered, found.n, found.failed, found.not_measurable) == ({}, 1, 1, 1)


def test_without_any_answer_there_is_no_measure():
    assert linkage(question(0, answer=None)).measures == {}
