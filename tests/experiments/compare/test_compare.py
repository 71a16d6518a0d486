import random
from dataclasses import replace

import dspy
import pytest

from tests.experiments.runs import SETTINGS, SUBSETS, TYPES, question, run, run_of
from typedrag.core.errors import InputError
from typedrag.experiments.compare import ALL, Stratum, compare, conflicts_between
from typedrag.experiments.results import MetricResult, Run, higher_is_better, summarize
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage

MRR = "linkage/mrr"


def values(n: int, shift: float = 0.0, seed: int = 0) -> list[float]:
    """The same questions for each seed, answered with another luck."""
    rng, noise = random.Random("questions"), random.Random(f"run {seed}")
    return [round(min(1.0, max(0.0, rng.random() * 0.8 + shift + noise.gauss(0, 0.05))), 3) for _ in range(n)]


def overall(comparison, measure=MRR):
    return next(d for d in comparison.differences if d.measure == measure and d.stratum == ALL)


def test_means_and_difference_are_over_the_same_questions():
    found = overall(compare([run_of("rag", [0.25, 0.5, 1.0]), run_of("typed", [0.5, 1.0])]))
    assert (found.n, found.baseline.value, found.other.value) == (2, 0.375, 0.75)
    assert (found.difference.value, found.difference.interval) == (0.375, None)
    assert found.p == 0.5  # of 2^2 signs, two are as extreme
    assert found.left_out == {"not in both runs": 1}


def test_a_measure_is_the_same_number_in_a_summary_and_in_a_comparison():
    """1 of 1 and 0 of 9 core sub-questions: 0.5 by question, and under another name 0.1 of all sub-questions."""

    def covering(covered: int, of: int) -> MetricResult:
        found = [
            {"type": "core", "answered": n < covered, "retrieved": [], "position": None, "text": f"{n}?"}
            for n in range(of)
        ]
        measures = {"core": covered / of, "rating": covered / of, "invalid": 0.0}
        return MetricResult(covered / of, measures=measures, details={"sub_questions": found})

    questions = [replace(question(n, None), metrics={"coverage": covering(*c)}) for n, c in enumerate([(1, 1), (0, 9)])]
    rag, typed = run("rag", *questions), run("typed", *questions)
    coverage = SubQuestionCoverage(dspy.LM("openai/none"), passages=False)
    summary = summarize(rag, {"coverage": coverage}).overall.metrics["coverage"].measures
    assert (summary["core"], summary["pooled_core"]) == (0.5, 0.1)
    for measure in rag.measures:
        assert summary[measure.removeprefix("coverage/")] == overall(compare([rag, typed]), measure).baseline.value


def test_what_is_left_out_is_counted_by_its_reason():
    rag = run(
        "rag",
        question(0, {"mrr": 0.5}),
        question(1, {"mrr": 0.5}),
        question(2, answer=None),
        question(3, judge_failed=True),
        question(4, measurable=False),
        question(5, judge_failed=True),
        question(6, {"mpr": 50.0}),
    )
    typed = run(
        "typed",
        question(0, {"mrr": 1.0}),
        question(1, judge_failed=True),
        question(2, {"mrr": 1.0}),
        question(3, answer=None),
        question(4, measurable=False),
        question(6, {"mrr": 1.0}),
        question(7, {"mrr": 1.0}),
    )
    found = overall(compare([rag, typed]))
    assert (found.n, found.baseline.value, found.other.value) == (2, 0.25, 1.0)  # question 2 counts as wrong
    assert (found.answered.n, found.answered.baseline.value) == (1, 0.5)
    assert found.left_out == {"judge failed": 2, "nothing to measure by": 2, "not in both runs": 2}
    assert overall(compare([typed, rag])).left_out == found.left_out


def test_each_type_and_subset_has_its_own_line():
    comparison = compare([run_of("rag", values(36)), run_of("typed", values(36, 0.1))], measures=[MRR])
    parts = [d.stratum for d in comparison.differences]
    assert parts == [ALL, *(Stratum("type", t) for t in TYPES), *(Stratum("subset", s) for s in SUBSETS)]
    assert [d.n for d in comparison.differences] == [36, *[6] * 6, *[12] * 3]
    assert {d.stratum.by for d in compare([run_of("a", [1.0]), run_of("b", [1.0])], by=()).differences} == {"all"}


def test_a_question_that_is_asked_twice_is_one_question():
    """Ten questions once and each twice: twice as many values are no more evidence."""
    luck = random.Random(1)
    values = [luck.random() for _ in range(10)]

    def two(times: int) -> list[Run]:
        asked = [(n + 10 * t, f"Why {n}{'?' * t}", value) for t in range(times) for n, value in enumerate(values)]
        runs = {"base": lambda value: 0.5, "other": lambda value: value}
        return [run(name, *(question(i, {"mrr": of(v)}, text=q) for i, q, v in asked)) for name, of in runs.items()]

    once, twice = (compare(two(n), measures=["linkage/mrr"], by=()).differences[0] for n in (1, 2))
    assert (once.n, twice.n) == (10, 20)
    assert twice.p == once.p and twice.questions_needed == once.questions_needed
    assert (twice.difference.low, twice.difference.high) == pytest.approx((once.difference.low, once.difference.high))


def test_a_clear_difference_is_marked_and_chance_is_not():
    runs = [run_of("rag", values(60)), run_of("typed", values(60, 0.1, 1)), run_of("same", values(60, seed=2))]
    better, same = compare(runs, measures=[MRR], by=()).differences
    assert better.verdict == "better"
    assert better.p <= better.corrected_p < 0.05
    assert better.questions_needed <= 60
    assert same.verdict == ""
    assert same.questions_needed > 60


def test_less_is_better_of_ranks_and_costs():
    before = [question(i, {"expected_rank": 3.0}) for i in range(20)]
    after = [question(i, {"expected_rank": 2.0 - i % 2}, tokens=200) for i in range(20)]
    runs = [run("rag", *before), run("typed", *after)]
    comparison = compare(runs)
    assert overall(comparison, "linkage/expected_rank").verdict == ""  # the score is tested
    assert overall(compare(runs, measures=["linkage/expected_rank"]), "linkage/expected_rank").verdict == "better"
    assert overall(comparison, "cost/tokens").verdict == "worse"
    assert higher_is_better("coverage/core")
    assert not higher_is_better("coverage/follow_up")


def test_the_baseline_can_be_any_run():
    runs = [run_of("rag", [0.0, 0.5]), run_of("typed", [1.0, 0.5]), run_of("lm", [0.5, 0.5])]
    comparison = compare(runs, baseline=1, measures=[MRR], by=())
    assert (comparison.baseline, comparison.runs) == ("typed", ("rag", "lm"))
    assert [d.difference.value for d in comparison.differences] == [-0.5, -0.25]


def test_a_metric_that_one_run_alone_has_is_no_conflict():
    other = {k: v for k, v in SETTINGS.items() if k != "metric linkage"}
    typed = run_of("typed", [1.0])
    assert conflicts_between(run_of("rag", [0.5]), typed) == []
    assert conflicts_between(typed, run("other", question(0, {"mrr": 1.0}), **{**other, "metric coverage": {}})) == []


def test_measures_are_chosen_by_name_or_metric():
    runs = [run(name, question(0, {"mrr": 1.0, "mpr": 100.0})) for name in ("rag", "typed")]

    def chosen(*wanted: str) -> list[str]:
        return list(dict.fromkeys(d.measure for d in compare(runs, measures=wanted, by=()).differences))

    measures = ["linkage/score", MRR, "linkage/mpr"]
    assert chosen() == [*measures, "cost/tokens", "cost/lm_calls", "cost/seconds"]
    assert chosen("linkage") == measures
    tested = {d.measure for d in compare(runs, measures=["linkage"], by=()).differences if d.p is not None}
    assert tested == {"linkage/score"}
    tested = {d.measure for d in compare(runs, measures=["linkage/mpr", MRR], by=()).differences if d.p is not None}
    assert tested == {"linkage/mpr"}
    assert chosen("cost/seconds", "linkage/score") == ["cost/seconds", "linkage/score"]
    with pytest.raises(InputError, match=r"measure 'bleu'.*Measures: linkage/score"):
        chosen("bleu")


def test_one_run_is_not_compared():
    with pytest.raises(InputError, match="one run cannot be compared"):
        compare([run_of("rag", [1.0])])


def test_a_comparison_without_a_shared_question_says_so():
    found = overall(compare([run("rag", question(0, {"mrr": 1.0})), run("typed", question(1, {"mrr": 1.0}))]))
    assert (found.n, found.difference, found.p, found.verdict) == (0, None, None, "")
    assert found.left_out == {"not in both runs": 2}


def test_ranks_have_no_verdict_where_an_answer_failed_since_a_failure_has_no_rank():
    rag = run("rag", *(question(n, {"expected_rank": 3.0}) for n in range(40)))
    failing = (question(n, {"expected_rank": 1.0}) if n % 2 else question(n, answer=None) for n in range(40))
    [found] = compare([rag, run("typed", *failing)], measures=["linkage/expected_rank"], by=()).differences
    assert (found.n, found.difference.value, found.p, found.verdict) == (20, -2.0, None, "")
    assert found.left_out == {"no answer": 20}
