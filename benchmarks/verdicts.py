"""Verdicts and intervals on simulated data whose truth is known: how often they are wrong, and how often they find it.

A verdict is measured by how often it says "better" where nothing is better, and where something is; beside it stands
the rule that it replaced. An interval is measured by how often it holds the truth. `--check` exits with 1 if a verdict
says "better" of nothing more often than 0.05, or an interval holds the truth less often than 0.93 or more than 0.97.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import false_discovery_control, norm, t

from typedrag.core.records import Answer
from typedrag.experiments.compare import compare, disagreements
from typedrag.experiments.held_out import ALPHA, Pair, held_out_test, permutation_p_values
from typedrag.experiments.results import MetricResult, QuestionResult, Run
from typedrag.metrics.estimate import mean_estimates
from typedrag.optimizers.compile.held_out import held_out

SIZES = (10, 20, 40, 100, 300)
HOLDS = (0.93, 0.97)
SAMPLES = 800
"""Simulated samples for each size of an interval; an eighth of them for each verdict."""
QUESTIONS = 60

Array = Any


class Rates(NamedTuple):
    """The shares of samples in which the present rule and the one before say "better"."""

    now: float
    before: float


def scores(rng: np.random.Generator, n: int, gain: float = 0.0, programs: int = 2) -> Array:
    """Scores of programs from 0 to 1: how hard a question is counts as much as luck; all but the first gain."""
    hard = rng.normal(0.5, 0.2, n)
    luck = rng.normal(0, 0.2, (programs, n))
    return np.clip(hard + luck + gain * (np.arange(programs)[:, None] > 0), 0, 1)


def run(name: str, failed: Sequence[bool] | None = None, **metrics: Array) -> Run:
    """A run by the scores of its metrics; a score that is NaN could not be measured."""
    n = len(next(iter(metrics.values())))
    questions = []
    for i in range(n):
        answer = None if failed is not None and failed[i] else Answer(f"Why {i}?", "So.")
        results = {name: _result(name, float(values[i])) for name, values in metrics.items()} if answer else {}
        questions.append(QuestionResult(f"q{i}", f"Why {i}?", None, answer=answer, metrics=results))
    return Run(name, Path(name), {}, tuple(questions), n)


def _result(metric: str, score: float) -> MetricResult:
    if np.isnan(score):
        return MetricResult(None, problem="nothing to measure by", measurable=False)
    if metric == "truthfulness":
        right = 2 * score - 1
        return MetricResult(
            score, measures={"truthfulness": right, "right": max(right, 0.0), "wrong": max(-right, 0.0)}
        )
    return MetricResult(score, measures={metric: score})


def compiled(base: Run, other: Run, tests: int = 1) -> bool:
    """True if a compile calls the other run better by the mean of its metrics."""
    weights = dict.fromkeys(base.questions[0].metrics, 1.0)
    ids = [q.id for q in base.questions]
    return held_out(base, other, weights, dict.fromkeys(weights, ids), tests=tests).verdict == "better"


def gains(base: Array, other: Array) -> bool:
    """True by an uncorrected test."""
    [p] = permutation_p_values([list(other - base)])
    return p is not None and p < ALPHA and float(np.mean(other - base)) > 0


def compile_(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """The same questions, one metric."""
    base, other = scores(rng, QUESTIONS, gain)
    return compiled(run("base", linkage=base), run("other", linkage=other)), gains(base, other)


def failing(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """Two of five answers fail, the hardest; before, they were left out."""
    base, other = scores(rng, QUESTIONS, gain)
    failed = other < np.quantile(other, 0.4) if not gain else np.zeros(QUESTIONS, dtype=bool)
    now = compiled(run("base", linkage=base), run("other", failed.tolist(), linkage=other))
    return now, gains(base[~failed], other[~failed])


def escaping(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """Answers without passages escape faithfulness, which is low; before, they were measured by the other metric."""
    base, other = scores(rng, QUESTIONS, gain)
    low, lower = 0.3 * scores(rng, QUESTIONS)
    escaped = np.full(QUESTIONS, np.nan) if not gain else lower
    pair = run("base", linkage=base, faithfulness=low), run("other", linkage=other, faithfulness=escaped)
    return compiled(*pair), gains((base + low) / 2, np.nanmean([other, escaped], axis=0))


def looking(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """The best of five programs that are looked at one after the other on the same questions."""
    base, *others = scores(rng, QUESTIONS, gain, programs=6)
    runs = [run("other", linkage=other) for other in others]
    now = any(compiled(run("base", linkage=base), other, tests=n + 1) for n, other in enumerate(runs))
    return now, any(gains(base, other) for other in others)


def copying(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """A metric beside another one of nine measures that is surely better; before, all ten were corrected together."""
    base, other = scores(rng, QUESTIONS, gain)
    sure, surer = scores(rng, QUESTIONS, 0.3)
    runs = []
    for name, value, copied in (("base", base, sure), ("other", other, surer)):
        plain = run(name, linkage=value, copied=copied)
        copies = [{f"copy{n}": float(c) for n in range(9)} for c in copied]
        questions = tuple(
            replace(q, metrics={**q.metrics, "copied": replace(q.metrics["copied"], measures=more)})
            for q, more in zip(plain.questions, copies, strict=True)
        )
        runs.append(replace(plain, questions=questions))
    [linkage] = [d for d in compare(runs, by=()).differences if d.measure == "linkage/linkage"]
    p_values = permutation_p_values([list(other - base), list(surer - sure)])
    corrected = false_discovery_control([p_values[0], *[p_values[1]] * 9])
    return linkage.verdict == "better", bool(corrected[0] < ALPHA) and float(np.mean(other - base)) > 0


def judging(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """Two judges on six labelled items of each of eight questions; before, an interval without 0 decided."""
    skill = rng.normal(0.5, 0.15, (8, 1)) + rng.normal(0, 0.15, (2, 8, 1))
    skill[1] += 2 * gain
    right = (rng.random((2, 8, 6)) < skill).astype(float)
    questions = [n for n in range(8) for _ in range(6)]
    [verdict] = held_out_test([Pair(right[0].ravel().tolist(), right[1].ravel().tolist(), questions)])
    by_question = (right[1] - right[0]).mean(axis=1)
    drawn = by_question[rng.integers(8, size=(1000, 8))].mean(axis=1)
    return verdict.verdict == "better", bool(np.quantile(drawn, 0.025) > 0)


def warning(rng: np.random.Generator, gain: float) -> tuple[bool, bool]:
    """Rank and truth disagree; before, one of the two differences could be chance."""
    rank, truth = scores(rng, QUESTIONS, gain), scores(rng, QUESTIONS, -gain)
    runs = [run(f"{i}", linkage=rank[i], truthfulness=truth[i]) for i in range(2)]
    differences = rank[1] - rank[0], truth[1] - truth[0]
    estimates = mean_estimates(*(list(d) for d in differences))
    apart = estimates[0].value * estimates[1].value < 0
    sure = any(e.low is not None and e.high is not None and (e.low > 0 or e.high < 0) for e in estimates)
    return bool(disagreements(runs[0], runs[1], ("0", "1"))), apart and sure


VERDICTS: dict[str, Callable[[np.random.Generator, float], tuple[bool, bool]]] = {
    "compile": compile_,
    "a program that fails at 24 of 60": failing,
    "a program that escapes a metric": escaping,
    "the best of five looks": looking,
    "a metric beside nine copies of another": copying,
    "a judge, 8 questions": judging,
    "rank and truth disagree": warning,
}


def rates(name: str, gain: float, samples: int) -> Rates:
    """The shares of samples with a verdict; with a gain of 0 nothing is better."""
    verdicts = [VERDICTS[name](np.random.default_rng([seed, round(100 * gain)]), gain) for seed in range(samples)]
    return Rates(*(float(share) for share in np.mean(verdicts, axis=0)))


def holds(n: int, samples: int) -> dict[str, Rates]:
    """The shares of intervals of a mean and of a paired difference that hold the truth, beside plain percentiles."""
    rng = np.random.default_rng(n)
    truths = scores(rng, 400_000, 0.1).mean(axis=1)
    plain = 1 - 2 * float(t.cdf(norm.ppf(0.025) / (n / (n - 1)) ** 0.5, n - 1))
    held = []
    for seed in range(samples):
        base, other = scores(rng, n, 0.1)
        rows = list(other), list(other - base)
        for confidence in (0.95, plain):
            ends = [e.interval or (0.0, 0.0) for e in mean_estimates(*rows, seed=seed, confidence=confidence)]
            of = (truths[1], truths[1] - truths[0])
            held += [low <= truth <= high for (low, high), truth in zip(ends, of, strict=True)]
    (mean, difference), (mean_before, before) = np.mean(np.reshape(held, (samples, 2, 2)), axis=0)
    return {"mean": Rates(float(mean), float(mean_before)), "difference": Rates(float(difference), float(before))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a rate is out of its bounds")
    arguments = parser.parse_args()
    missed = []
    print("interval holds the truth      n    now  percentiles")
    for n in SIZES:
        for name, shares in holds(n, arguments.samples).items():
            print(f"{name:24} {n:6} {shares.now:6.3f} {shares.before:12.3f}")
            if not HOLDS[0] <= shares.now <= HOLDS[1]:
                missed.append(f"the interval of a {name} of {n}")
    # fewer flips and resamples than a user gets: p moves by 0.007, either way
    for function, setting, value in ((permutation_p_values, "flips", 999), (mean_estimates, "resamples", 200)):
        (function.__kwdefaults__ or {})[setting] = value
    print("\nsaid to be better                        of nothing  before   of a gain  before")
    for name in VERDICTS:
        nothing, gain = (rates(name, gain, arguments.samples // 8) for gain in (0.0, 0.1))
        print(f"{name:40} {nothing.now:10.3f} {nothing.before:7.3f} {gain.now:11.3f} {gain.before:7.3f}", flush=True)
        if nothing.now > ALPHA:
            missed.append(name)
    if missed:
        print(f"out of bounds: {', '.join(missed)}")
    raise SystemExit(bool(missed) and arguments.check)


if __name__ == "__main__":
    main()
