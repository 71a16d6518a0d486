from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.experiments.runs import judged, question, run
from typedrag.core.errors import InputError
from typedrag.experiments.compare import compare
from typedrag.experiments.held_out import check_enough, format_verdict, pair_values, with_objective
from typedrag.experiments.results import MetricResult, Run
from typedrag.optimizers.compile.held_out import held_out

TRUTH = "truthfulness/truthfulness"


def scored(run: Run, score: float) -> Run:
    """The run with this score of linkage at every question."""
    return replace(
        run,
        questions=tuple(
            replace(q, metrics={**q.metrics, "linkage": replace(q.metrics["linkage"], score=score)}) if q.answer else q
            for q in run.questions
        ),
    )


EVERY = {name: [f"q{n}" for n in range(60)] for name in ("linkage", "truthfulness", "faithfulness")}
BASE = scored(judged("base", *(1.0,) * 10, *(0.0,) * 10), 0.4)
SLIPPED = (1.0,) * 9 + (-1.0,) + (0.0,) * 10  # one question: by chance
FELL = (1.0,) * 2 + (-1.0,) * 8 + (0.0,) * 10


@pytest.mark.parametrize(
    ("truths", "score", "verdict"),
    [
        ((1.0,) * 20, 0.6, "better"),
        (SLIPPED, 0.6, "better"),
        (FELL, 0.6, "less truthful"),
        (FELL, 0.4, "less truthful"),
        (FELL, 0.2, "worse"),
        (SLIPPED, 0.4, ""),
    ],
)
def test_it_is_better_only_if_it_is_not_less_truthful_by_more_than_chance(truths, score, verdict):
    test = held_out(BASE, scored(judged("compiled", *truths), score), {"linkage": 1.0}, EVERY)
    assert test.verdict == verdict
    assert test.changes[TRUTH].value == pytest.approx(sum(truths) / 20 - 0.5)
    assert (test.base[TRUTH].value, test.truth.difference.value) == (0.5, test.changes[TRUTH].value)


def test_the_reason_is_in_the_verdict():
    test = held_out(BASE, scored(judged("compiled", *FELL), 0.6), {"linkage": 1.0}, EVERY)
    assert format_verdict(test.verdict, test.truth.difference).startswith(
        "NOT BETTER, for answers are less truthful, by -0.800 [-1."
    )


def test_where_truthfulness_was_not_measured_the_objective_decides():
    def without(run: Run) -> Run:
        return replace(
            run, questions=tuple(replace(q, metrics={"linkage": q.metrics["linkage"]}) for q in run.questions)
        )

    test = held_out(without(BASE), without(scored(judged("compiled", *FELL), 0.6)), {"linkage": 1.0}, EVERY)
    assert (test.verdict, test.truth) == ("better", None)


def test_the_objective_is_the_weighted_mean_of_the_metrics_that_can_measure_the_question():
    run = scored(judged("run", *(1.0,) * 5), 0.5)
    linkage = run.questions[0].metrics["linkage"]
    escaped, without, failed, unread = run.questions[1:]
    run = replace(
        run,
        questions=(
            run.questions[0],
            replace(escaped, metrics={**escaped.metrics, "linkage": replace(linkage, score=None, measurable=False)}),
            without,
            replace(failed, answer=None, metrics={}),
            replace(unread, metrics={**unread.metrics, "linkage": replace(linkage, score=None)}),
        ),
    )
    measurable = {"linkage": ["q0", "q1", "q3", "q4"], "truthfulness": EVERY["truthfulness"]}
    weighted = with_objective(run, {"linkage": 3.0, "truthfulness": 1.0}, measurable)
    assert weighted.values("objective/score") == {"q0": 0.625, "q1": 0.25, "q2": 1.0, "q3": 0.0}


def test_a_program_does_not_win_by_what_cannot_be_measured_of_it():
    """Faithfulness 0.2 and linkage 0.8 against an answer without passages, of linkage 0.8."""
    base = scored(judged("base", *(0.0,) * 40), 0.8)
    faithful = MetricResult(0.2, measures={"grade": 2.0})
    base = replace(
        base, questions=tuple(replace(q, metrics={**q.metrics, "faithfulness": faithful}) for q in base.questions)
    )
    unmeasured = MetricResult(None, problem="it has no passages", measurable=False)
    other = replace(
        base, questions=tuple(replace(q, metrics={**q.metrics, "faithfulness": unmeasured}) for q in base.questions)
    )
    test = held_out(base, other, {"faithfulness": 1.0, "linkage": 1.0}, EVERY)
    assert test.overall.difference.value == pytest.approx(-0.1)
    assert test.verdict == "worse"


def failing(answered: float, failed: int, of: int = 60) -> Run:
    questions = (question(n, answer=None) if n < failed else question(n, {"mrr": answered}) for n in range(of))
    return scored(run("compiled", *questions), answered)


def test_a_program_that_fails_24_of_60_questions_is_not_better_for_the_36():
    base, other = failing(0.6, 0), failing(0.63, 24)
    test = held_out(base, other, {"linkage": 1.0}, EVERY)
    assert test.verdict == "worse"
    assert test.overall.difference.value == pytest.approx(0.6 * 0.63 - 0.6)
    assert test.overall.answered.difference.value == pytest.approx(0.03) and test.overall.answered.n == 36
    [compared] = compare([base, other], measures=["linkage/mrr"], by=(), force=True).differences
    assert (compared.verdict, compared.n, compared.left_out) == ("worse", 60, {})
    assert compared.difference.value == pytest.approx(test.overall.difference.value)
    assert compared.answered.difference.value == pytest.approx(0.03)


def test_a_failed_answer_is_worth_what_a_wrong_one_is_and_less_than_one_that_does_not_know():
    failed = run("run", *judged("run", -1.0, 0.0).questions, question(2, answer=None))
    assert failed.values(TRUTH) == {"q0": -1.0, "q1": 0.0, "q2": -1.0}
    assert failed.values("truthfulness/score") == {"q0": 0.0, "q1": 0.5, "q2": 0.0}
    assert failed.values("truthfulness/wrong") == {"q0": 1.0, "q1": 0.0, "q2": 1.0}
    assert failed.values("truthfulness/score", answered=True) == {"q0": 0.0, "q1": 0.5}
    assert failed.mean("truthfulness/score").value == pytest.approx(1 / 6)
    assert failed.values("bleu/score") == {} == failed.values("linkage/expected_rank")


@pytest.mark.parametrize(("programs", "verdict"), [(1, "better"), (3, "better"), (4, "")])
def test_p_is_corrected_for_all_programs_ever_tested_on_the_questions(programs, verdict):
    base = failing(0.5, 0, of=8)  # the least p of 8 questions is 2 / 2^8
    test = held_out(base, failing(0.6, 0, of=8), {"linkage": 1.0}, EVERY, tests=2 * programs)
    assert (test.verdict, test.p) == (verdict, pytest.approx(2 * programs * 2 / 2**8))


def test_copies_of_a_measure_lend_no_significance_to_another_metric():
    def with_null(name: str, real: float, null: Callable[[int], float]) -> Run:
        copies = {f"copy{n}": real for n in range(8)}
        questions = []
        for n in range(20):
            plain = question(n, {})
            metrics = {
                "copied": MetricResult(real, measures=copies),
                "null": MetricResult(null(n), measures={"null": null(n)}),
            }
            questions.append(replace(plain, metrics=metrics))
        return run(name, *questions)

    # 14 of 20 questions gain and 6 lose: p 0.115; 15 and 5: 0.041
    base, other = with_null("base", 0.2, lambda n: 0.5), with_null("other", 0.8, lambda n: 0.7 if n < 15 else 0.3)
    differences = {d.measure: d for d in compare([base, other], by=()).differences}
    assert differences["null/null"].p == pytest.approx(0.041, abs=0.005)
    assert differences["null/null"].corrected_p == 2 * differences["null/null"].p
    assert (differences["null/null"].verdict, differences["copied/score"].verdict) == ("", "better")
    copies = [d for name, d in differences.items() if name.startswith("copied/copy")]
    assert len(copies) == 8 and all(d.difference.value == pytest.approx(0.6) for d in copies)
    assert {(d.p, d.corrected_p, d.verdict) for d in copies} == {(None, None, "")}


def test_questions_that_share_an_id_but_not_their_text_are_not_paired():
    base, other = (
        run(name, *(question(n, {"mrr": value}, text=f"{text} {n}?" if n else "The same?") for n in range(3)))
        for name, value, text in (("base", 0.2, "Why"), ("other", 0.9, "How"))
    )
    assert pair_values(base, other, "linkage/mrr") == ([0.2], [0.9], [base.groups["q0"]])
    with pytest.raises(InputError, match=r"another question under the id 'q1' \(2 such\)"):
        compare([base, other])
    forced = compare([base, other], measures=["linkage/mrr"], by=(), force=True).differences
    assert [(d.n, d.left_out) for d in forced] == [(1, {"not in both runs": 2})]


def test_too_few_questions_for_a_verdict_are_refused_with_the_number_that_is_needed():
    check_enough(6, "split 'test'", "")
    with pytest.raises(InputError, match="5 questions are too few for a verdict, which takes 6"):
        check_enough(5, "split 'test'", "")
    with pytest.raises(InputError, match="6 questions are too few for a verdict after 1 tests on them, which takes 7"):
        check_enough(6, "split 'test'", "", tests=2)
