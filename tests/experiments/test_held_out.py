from __future__ import annotations

from dataclasses import replace

import pytest

from tests.experiments.runs import judged
from typedrag.experiments.compare.compare import ALL
from typedrag.experiments.compare.truth import say_verdict
from typedrag.experiments.compare.weighted import with_objective
from typedrag.experiments.evaluate.results import Run
from typedrag.optimizers.compile.held_out import held_out

TRUTH = "truthfulness/truthfulness"


def scored(run: Run, score: float) -> Run:
    """The run with this score of linkage at every question."""
    return replace(
        run,
        questions=tuple(
            replace(q, metrics={**q.metrics, "linkage": replace(q.metrics["linkage"], score=score)})
            for q in run.questions
        ),
    )


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
def test_it_is_better_only_if_it_is_not_less_truthful_by_its_interval(truths, score, verdict):
    test = held_out(BASE, scored(judged("compiled", *truths), score), {"linkage": 1.0})
    assert test.verdict == verdict
    assert test.changes[TRUTH].value == pytest.approx(sum(truths) / 20 - 0.5)
    assert (test.base[TRUTH].value, test.truth) == (
        0.5,
        next(d.difference for d in test.differences if d.measure == TRUTH and d.stratum == ALL),
    )


def test_the_reason_is_in_the_verdict():
    test = held_out(BASE, scored(judged("compiled", *FELL), 0.6), {"linkage": 1.0})
    assert say_verdict(test.verdict, test.truth).startswith("NOT BETTER, for answers are less truthful, by -0.800 [-1.")


def test_where_truthfulness_was_not_measured_the_objective_decides():
    def without(run: Run) -> Run:
        return replace(
            run, questions=tuple(replace(q, metrics={"linkage": q.metrics["linkage"]}) for q in run.questions)
        )

    test = held_out(without(BASE), without(scored(judged("compiled", *FELL), 0.6)), {"linkage": 1.0})
    assert (test.verdict, test.truth) == ("better", None)


def test_the_objective_is_the_weighted_mean_of_what_could_be_measured():
    run = scored(judged("run", 1.0, -1.0), 0.5)
    first, last = run.questions
    unmeasured = replace(
        last, metrics={**last.metrics, "linkage": replace(last.metrics["linkage"], score=None, measurable=False)}
    )
    unanswered = replace(last, id="q2", answer=None, metrics={})
    run = replace(run, questions=(first, unmeasured, unanswered))
    weights = {"linkage": 3.0, "truthfulness": 1.0}
    assert with_objective(run, weights).values("objective/score") == {"q0": 0.625, "q1": 0.0}
    assert with_objective(run, weights, unanswered=0.0).values("objective/score") == {"q0": 0.625, "q1": 0.0, "q2": 0.0}
