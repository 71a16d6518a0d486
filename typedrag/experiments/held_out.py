"""The test of whether a program, judge or ranker is better than another on the same held-out questions.

It is decided here alone: compiles, sweeps, comparisons, checks of judges and rankers all judge by `held_out_test`.
`docs/metrics.md` tells its rules, and `python -m benchmarks.verdicts` measures how often it is right. Questions are
resampled, so intervals show the uncertainty over other questions, not over another seed of the LM.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2
from typing import Literal, NamedTuple

import dspy

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Estimate
from typedrag.datasets import Dataset
from typedrag.experiments.config import MetricConfig
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.resources import check_measurable
from typedrag.experiments.results import MetricResult, QuestionResult, Run
from typedrag.metrics import build_metric
from typedrag.metrics.estimate import mean_estimates, sums_by_group
from typedrag.metrics.objective import TRUTHFULNESS
from typedrag.programs.compiled import Verdict as CompileVerdict
from typedrag.retrieval.local_models import locate_model
from typedrag.retrieval.rerankers import BI_ENCODER

ALPHA = 0.05  # the corrected p-value below which a difference is called real
FLIPS = 49_999  # random flips of signs: the least p-value survives a correction for a thousand comparisons
_EXACT = 15  # the most differences for which all flips of signs are tried
OBJECTIVE = "objective"
SCORE = f"{OBJECTIVE}/score"
TRUTH = f"{TRUTHFULNESS}/{TRUTHFULNESS}"
RIGHT = f"{TRUTHFULNESS}/right"


class Pair(NamedTuple):
    """The values of a base and of another program, and the question of each value, which may have several."""

    base: Sequence[float]
    other: Sequence[float]
    questions: Sequence[Hashable]

    @property
    def differences(self) -> list[float]:
        return sums_by_group([b - a for a, b in zip(self.base, self.other, strict=True)], self.questions)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The difference of another program's mean from a base's over n values, and whether it is more than chance: by the
    p-value of the sign-flip test (None if it was not tested), corrected for all tests that are looked at together, and
    how many questions would show such a difference."""

    n: int
    baseline: Estimate | None = None
    other: Estimate | None = None
    difference: Estimate | None = None
    p: float | None = None
    corrected_p: float | None = None
    questions_needed: int | None = None
    more_is_better: bool = True

    @property
    def verdict(self) -> Literal["better", "worse", ""]:
        if self.difference is None or self.corrected_p is None or self.corrected_p >= ALPHA:
            return ""
        return "better" if (self.difference.value > 0) == self.more_is_better else "worse"

    @property
    def is_lower(self) -> bool:
        # without a correction: a reason for caution
        return self.difference is not None and self.difference.value < 0 and self.p is not None and self.p < ALPHA


def held_out_test(pairs: Sequence[Pair], *, programs: int = 1, seed: int = 0) -> list[Verdict]:
    """Compare programs with a base, each by its pair of values, by paired sign-flip tests over questions.

    The pairs are all that is looked at together: p-values are corrected for the number of those with values, and for
    the `programs` that were ever compared with the base on the same questions, if each was looked at alone. The
    correction is Bonferroni's: those that are less strict let sure differences make others look sure, so that chance
    would pass because the same effect was measured eight times beside it.

    Example:
        >>> [better] = held_out_test([Pair([0.0] * 8, [0.25] * 8, range(8))])
        >>> print(better.difference, better.p, better.verdict)
        0.250 (n = 8 questions) 0.0078125 better
    """
    p_values = permutation_p_values([pair.differences for pair in pairs], seed=seed)
    tests = sum(p is not None for p in p_values) * programs
    return [estimate_difference(pair, p, tests, seed) for pair, p in zip(pairs, p_values, strict=True)]


def estimate_difference(pair: Pair, p: float | None = None, tests: int = 1, seed: int = 0) -> Verdict:
    """The means of a pair and their difference; without a p, there is no verdict."""
    differences = [b - a for a, b in zip(pair.base, pair.other, strict=True)]
    means = mean_estimates(pair.base, pair.other, differences, groups=pair.questions, seed=seed)
    baseline, other, difference = means or (None, None, None)
    corrected = None if p is None else min(1.0, p * tests)
    return Verdict(
        n=len(pair.base), baseline=baseline, other=other, difference=difference, p=p, corrected_p=corrected,
        questions_needed=questions_needed(pair.differences),
    )  # fmt: skip


def pair_values(
    base: Run, other: Run, measure: str, among: Collection[str] | None = None, *, answered: bool = False
) -> Pair:
    """The values of a measure that two runs have for the same questions, with the same id and text; see `Run.values`.

    `answered` leaves out questions to which one of the two gave no answer, instead of counting them as wrong.
    """
    ours, theirs = (run.values(measure, answered=answered) for run in (base, other))
    groups, same = base.groups, shared_ids(base, other)
    shared = [i for i in ours if i in theirs and i in same and (among is None or i in among)]
    return Pair([ours[i] for i in shared], [theirs[i] for i in shared], [groups[i] for i in shared])


def shared_ids(base: Run, other: Run) -> set[str]:
    """The ids under which two runs have the same question."""
    ours, theirs = base.groups, other.groups
    return {i for i, question in ours.items() if theirs.get(i) == question}


def check_enough(questions: int, what: str, hint: str, tests: int = 1) -> None:
    """Refuse a test that could not show anything, before it is paid; `tests` counts this program's too."""
    if questions < (needed := fewest_questions(tests)):
        after = f" after {tests - 1} tests on them" if tests > 1 else ""
        raise InputError(f"{what}: {questions} questions are too few for a verdict{after}, which takes {needed}", hint)


def permutation_p_values(
    differences: Sequence[Sequence[float]], *, seed: int = 0, flips: int = FLIPS
) -> list[float | None]:
    """Two-sided p-values of the paired permutation test, one for each list of differences; None for an empty one.

    If the two programs were alike, each difference could as well have had the other sign: the p-value is the share of
    all assignments of signs whose mean is at least as far from 0 as the actual one. With few differences all
    assignments are tried; else `flips` random ones, which all lists share.

    Example:
        Two of 2^5 assignments are as extreme as all positive. Of the 2^3 assignments of 3, 1, -2, whose sum
        is 2, six have a sum of at least 2 or at most -2. A single difference proves nothing:

        >>> permutation_p_values([[1, 2, 3, 4, 5], [3, 1, -2], [0.5], []])
        [0.0625, 0.75, 1.0, None]
    """
    # a difference of 0 has no sign to flip: it neither adds to a sum nor doubles the assignments
    signed = [[float(d) for d in row if d] for row in differences]
    p_values: list[float | None] = [1.0 if len(row) else None for row in differences]
    by_length = sorted((i for i, row in enumerate(signed) if row), key=lambda i: len(signed[i]))
    exact = bisect_right(by_length, _EXACT, key=lambda i: len(signed[i]))
    for tests in (by_length[:exact], by_length[exact:]):
        for i in range(0, len(tests), 256):  # few enough for the sums of all flips to fit into memory
            chosen = tests[i : i + 256]
            for test, p in zip(chosen, _flip_signs([signed[i] for i in chosen], seed, flips), strict=True):
                p_values[test] = p
    return p_values


def _flip_signs(rows: list[list[float]], seed: int, flips: int) -> list[float]:
    import numpy as np
    from scipy.stats import permutation_test

    width = max(2, *(len(row) for row in rows))
    padded = np.zeros((width, len(rows)))
    for column, row in enumerate(rows):
        padded[: len(row), column] = np.asarray(row) / np.abs(row).max()
    tested = permutation_test(
        (np.ones(width),),
        # rounded, so that sums that are equal in exact arithmetic count as equal
        lambda signs, axis: np.round(signs @ padded, 9),
        permutation_type="samples",
        n_resamples=flips,
        batch=1000,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return [float(p) for p in tested.pvalue]


def fewest_questions(tests: int = 1) -> int:
    """The fewest questions whose sign-flip test, with `tests` looked at together, can reach a p below 0.05.

    Example:
        The least p of 6 questions is 2 / 2^6 = 0.031, that of 7 is half of it.

        >>> fewest_questions(), fewest_questions(tests=2)
        (6, 7)
    """
    return floor(log2(2 * tests / ALPHA)) + 1


def questions_needed(differences: Sequence[float]) -> int | None:
    """The number of questions that would show the mean difference with a probability of 0.8, if it is the true one.

    The normal approximation of the paired two-sided test gives ((z of 1 - alpha/2 + z of 0.8) * s / mean)^2, with alpha
    = 0.05, uncorrected, and s the standard deviation of the differences. It is at least 6, below which no sign-flip
    test reaches 0.05; None if the mean is 0 or there are fewer than two differences.

    Example:
        Mean 0.5, s 0.577: (2.802 * 0.577 / 0.5)^2 = 10.5.

        >>> questions_needed([1, 0, 1, 0]), questions_needed([1, -1])
        (11, None)
    """
    import numpy as np
    from scipy.stats import norm

    if len(differences) < 2 or not (mean := float(np.mean(differences))):
        return None
    z = norm.ppf(1 - ALPHA / 2) + norm.ppf(0.8)
    return max(fewest_questions(), ceil((z * float(np.std(differences, ddof=1)) / mean) ** 2))


def with_objective(run: Run, weights: Mapping[str, float], measurable: Mapping[str, Collection[str]]) -> Run:
    """The run with another metric, `objective`: the mean of the scores of others by their weights.

    As in `Objective`, a metric counts for the questions that it can measure (see `measurable_ids`), whatever the
    answer: an answer that it cannot measure scores 0 by it, so that no program wins by escaping a metric. A question
    without an answer scores 0; one whose judge failed has no score.
    """

    def objective(question: QuestionResult) -> MetricResult:
        own = {n: w for n, w in weights.items() if question.id in measurable.get(n, ())}
        if not own:
            return MetricResult(None, problem="nothing to measure by", measurable=False)
        score = 0.0
        for name, weight in own.items() if question.answer else ():
            result = question.metrics.get(name)
            if result is None or (result.measurable and result.score is None):
                return MetricResult(None, problem=result.problem if result else f"{name} is not measured")
            score += weight * (result.score or 0.0)
        score /= sum(own.values())
        return MetricResult(score, measures={"score": score})

    questions = (replace(q, metrics={**q.metrics, OBJECTIVE: objective(q)}) for q in run.questions)
    return replace(run, questions=tuple(questions))


def with_truthfulness(
    metrics: Sequence[MetricConfig],
    examples: Sequence[dspy.Example],
    dataset: Dataset,
    scorer: dspy.LM | None,
    on_notice: Callable[[str], None],
) -> tuple[MetricConfig, ...]:
    """The metrics of a test, with truthfulness if it can measure any of the examples; else `on_notice` gets why not."""
    if TRUTHFULNESS in (metric.name for metric in metrics):
        return tuple(metrics)
    try:
        truthfulness = build_metric(TRUTHFULNESS, scorer)
        check_measurable(truthfulness, examples, dataset)
        locate_model(BI_ENCODER)  # the metric compares by it if words do not decide
    except (InputError, RetrievalError) as error:
        on_notice(f"whether answers are as true as before is not measured: {error.problem}. {error.hint}")
        return tuple(metrics)
    return (*metrics, MetricConfig(name=TRUTHFULNESS))


def combine_verdicts(objective: Verdict | None, truth: Verdict | None) -> CompileVerdict:
    """The verdict by the objective, unless answers are less true by more than chance; empty if it was not measured."""
    by_objective: CompileVerdict = objective.verdict if objective else ""
    return "less truthful" if truth and truth.is_lower and by_objective != "worse" else by_objective


def format_verdict(verdict: CompileVerdict, truth: Estimate | None) -> str:
    """A verdict in words, with the difference in truthfulness if that decides.

    Example:
        >>> format_verdict("less truthful", Estimate(-0.1, -0.2, -0.01, n=60))
        'NOT BETTER, for answers are less truthful, by -0.100 [-0.200, -0.010]'
    """
    if verdict == "less truthful":
        return f"NOT BETTER, for answers are less truthful, by {format_estimate(truth, signed=True)}"
    words = {"better": "better", "worse": "WORSE", "unchanged": "no better, as nothing has changed"}
    return words.get(verdict, "no better than chance would have it")


def format_truth(truth: Estimate | None) -> str:
    """The difference in truthfulness, with a warning if it is below 0; empty if it was not measured."""
    if truth is None:
        return ""
    warning = ": lower than before, be it by chance; read answers before it is used" if truth.value < 0 else ""
    return f"{TRUTHFULNESS} {format_estimate(truth, signed=True)}{warning}"
