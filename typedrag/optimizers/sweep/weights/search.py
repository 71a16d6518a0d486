"""Search the weights that put answers in the order of their targets (sub-question coverage, section 4).

An answer's score is the weighted sum of its coverage. Of two answers to a question, the one with the
higher score is predicted to be the better one; equal scores count half, like a coin toss. Only the
ratios of weights matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import optuna
from numpy.typing import NDArray

from typedrag.errors import InputError
from typedrag.metrics.arithmetic.agreement import share_estimate
from typedrag.metrics.arithmetic.coverage import WEIGHTS
from typedrag.optimizers.sweep.config import WeightsSampler
from typedrag.optimizers.sweep.weights.rated import RatedAnswer
from typedrag.records import Estimate

Array = NDArray[np.float64]

_EQUAL = 1e-9
"""Scores that differ by less count as equal: sums of thirds are not exact."""
_LEARN = ("tpe", "nsga2", "gp")


@dataclass(frozen=True)
class Weights:
    """The weights of core, background and follow-up sub-questions.

    Example:
        >>> print(Weights(0.5, 0.25, -0.5))
        1 : 0.5 : -1
    """

    core: float
    background: float
    follow_up: float

    def __str__(self) -> str:
        largest = self.core if self.core > 0 else max(map(abs, self.as_tuple), default=0.0)
        return " : ".join(f"{round(w / (largest or 1.0), 2) or 0.0:g}" for w in self.as_tuple)

    @property
    def as_tuple(self) -> tuple[float, float, float]:
        """The weights in the order of the metric `coverage`."""
        return self.core, self.background, self.follow_up


PUBLISHED = Weights(*WEIGHTS.values())
CORE_ONLY = Weights(1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Pairs:
    """Pairs of a better and a worse answer to the same question.

    Attributes:
        covered: [pairs, 3] The coverage of the better answer less that of the worse, for each type.
        questions: [pairs] The position of the pair's question, which several examples may share.
        judge: [pairs] The LM judge's points: 1 if it prefers the better answer, 0.5 if it cannot tell; NaN
            if it was not asked.
    """

    covered: Array
    questions: NDArray[np.intp]
    judge: Array

    def __len__(self) -> int:
        return len(self.questions)

    def points(self, weights: Array) -> Array:
        """The points of weights for each pair: 1 if they predict it, 0 if not, 0.5 for equal scores.

        Args:
            weights: [n, 3]

        Returns:
            [n, pairs]

        Example:
            >>> better = RatedAnswer(question="q", core=1.0, follow_up=0.0, target=1)
            >>> pairs = pairs_of([better, RatedAnswer(question="q", core=0.5, follow_up=0.5, target=0)])
            >>> pairs.points(np.array([[1.0, 0.5, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
            [[1.0], [0.5], [0.0]]
        """
        differences = np.asarray(weights) @ self.covered.T
        return np.where(np.abs(differences) < _EQUAL, 0.5, differences > 0)

    def accuracy(self, points: Array, seed: int = 0) -> Estimate | None:
        """The mean over pairs, with an interval that resamples whole questions."""
        return _mean_by_question(points, self.questions, seed)


def pairs_of(answers: Sequence[RatedAnswer]) -> Pairs:
    """All pairs of answers to the same question whose targets differ.

    Raises:
        InputError: If there is none.
    """
    by_question: dict[str, list[RatedAnswer]] = {}
    for answer in answers:
        by_question.setdefault(answer.question, []).append(answer)
    covered, questions, judge = [], [], []
    positions: dict[str, int] = {}
    for rated in by_question.values():
        position = positions.setdefault(rated[0].group or rated[0].question, len(positions))
        for one, other in combinations(rated, 2):
            if one.target != other.target:
                better, worse = (one, other) if one.target > other.target else (other, one)
                covered.append(_shares(better) - _shares(worse))
                questions.append(position)
                judge.append(_said(better.judge, worse.judge))
    if not covered:
        raise InputError("no question has two answers of which one is better", "Name other data")
    return Pairs(np.array(covered), np.array(questions), np.array(judge))


@dataclass(frozen=True)
class HeldOut:
    """Weights found on pairs that were held out for that, as in the paper.

    Attributes:
        weights: The best weights on those pairs.
        accuracy: Their accuracy on all other pairs.
        n: The number of pairs that they were found on.
    """

    weights: Weights
    accuracy: Estimate | None
    n: int


@dataclass(frozen=True)
class Searched:
    """The result of a search.

    Attributes:
        best: The weights that predict best over all pairs; of equally good ones, those in the middle.
        trials: [n, 3] The weights that were tried on all pairs, scaled so that the largest is 1 or -1.
        accuracies: [n] The accuracies of these weights over all pairs.
        accuracy: The cross-validated accuracy: of weights found without the pairs that they are measured on.
        fitted: The accuracy of `best` on the pairs that chose them, which is too good.
        folds: The weights that were found without each fold.
        baselines: Accuracies by name: the published weights, core alone, and the LM judge if it was asked.
        gains: `accuracy` less that of each baseline, pair by pair.
        n: The number of pairs.
        held_out: Weights found on a few pairs and measured on the others; None if none were held out.
    """

    best: Weights
    trials: Array
    accuracies: Array
    accuracy: Estimate | None
    fitted: Estimate | None
    folds: tuple[Weights, ...]
    baselines: Mapping[str, Estimate]
    gains: Mapping[str, Estimate]
    n: int
    held_out: HeldOut | None = None


def search_weights(
    pairs: Pairs,
    *,
    sampler: WeightsSampler | None = None,
    trials: int = 2000,
    folds: int = 5,
    held_out: int | None = None,
    seed: int = 0,
) -> Searched:
    """Search weights, and estimate by cross-validation how well such a search does. No LM is asked.

    Args:
        sampler: The sampler that chooses weights; one that learns starts anew for each fold, from the other folds.
        folds: Folds of the cross-validation; a question's pairs are in one fold.
        held_out: Pairs on which weights are found, to be measured on all others; whole questions are drawn.

    Raises:
        InputError: If there are fewer questions than folds, or no pair is left beside those held out.
    """
    sampler = sampler or WeightsSampler()
    fold_of = _folds(pairs, folds, seed)
    every = np.ones(len(pairs), dtype=bool)
    tried = _candidates(pairs, every, sampler, trials)
    points = pairs.points(tried)
    winner = _best(tried, points.mean(axis=1))

    def best_on(among: NDArray[np.bool_]) -> Array:
        if sampler.name in _LEARN:
            others = _candidates(pairs, among, sampler, trials)
            return _best(others, pairs.points(others)[:, among].mean(axis=1))
        return _best(tried, points[:, among].mean(axis=1))

    unseen, found_without = np.empty(len(pairs)), []
    for fold in range(folds):
        rest = fold_of != fold
        best = best_on(rest)
        found_without.append(Weights(*map(float, best)))
        unseen[~rest] = pairs.points(best[None])[0, ~rest]
    apart = None
    if held_out:
        among = _drawn(pairs, held_out, seed)
        best = best_on(among)
        rest = np.where(among, np.nan, pairs.points(best[None])[0])
        apart = HeldOut(Weights(*map(float, best)), pairs.accuracy(rest, seed), int(among.sum()))
    compared = _baselines(pairs)
    baselines = {name: _mean_by_question(p, pairs.questions, seed) for name, p in compared.items()}
    gains = {name: _mean_by_question(unseen - p, pairs.questions, seed) for name, p in compared.items()}
    return Searched(
        best=Weights(*map(float, winner)),
        trials=tried,
        accuracies=points.mean(axis=1),
        accuracy=pairs.accuracy(unseen, seed),
        fitted=pairs.accuracy(pairs.points(winner[None])[0], seed),
        folds=tuple(found_without),
        baselines={name: e for name, e in baselines.items() if e is not None},
        gains={name: e for name, e in gains.items() if e is not None},
        n=len(pairs),
        held_out=apart,
    )


def _baselines(pairs: Pairs) -> dict[str, Array]:
    points = {
        f"published weights, {PUBLISHED}": pairs.points(np.array([PUBLISHED.as_tuple]))[0],
        "core alone": pairs.points(np.array([CORE_ONLY.as_tuple]))[0],
    }
    if not np.isnan(pairs.judge).all():
        points["LM judge"] = pairs.judge
    return points


def _candidates(pairs: Pairs, among: NDArray[np.bool_], sampler: WeightsSampler, trials: int) -> Array:
    """The weights that a sampler tries for these pairs."""
    if sampler.name == "grid":
        return _scaled(np.array([w for w in product(sampler.values, repeat=3) if any(w)]))
    part = Pairs(pairs.covered[among], pairs.questions[among], pairs.judge[among])

    def accuracy(weights: Sequence[float]) -> float:
        return float(part.points(np.array([weights])).mean())

    return _scaled(np.array(_sampled(sampler, trials, accuracy)))


def _sampled(
    sampler: WeightsSampler, trials: int, accuracy: Callable[[Sequence[float]], float]
) -> list[tuple[float, ...]]:
    from typedrag.optimizers.sweep.study import build_sampler, without_notices

    space = dict.fromkeys(("core", "background", "follow-up"), optuna.distributions.FloatDistribution(-1.0, 1.0))
    tried = []
    with without_notices():
        study = optuna.create_study(direction="maximize", sampler=build_sampler(sampler, sampler.seed))
        for _ in range(trials):
            trial = study.ask(dict(space))
            weights = tuple(float(trial.params[name]) for name in space)
            study.tell(trial, accuracy(weights))
            tried.append(weights)
    return tried


def _best(tried: Array, accuracies: Array) -> Array:
    """The weights with the best accuracy; of equally good ones, those nearest to their mean, which are least likely
    to be good by chance."""
    equals = tried[accuracies >= accuracies.max() - _EQUAL]
    nearest: Array = equals[np.argmin(((equals - equals.mean(axis=0)) ** 2).sum(axis=1))]
    return nearest


def _scaled(weights: Array) -> Array:
    largest = np.abs(weights).max(axis=1, keepdims=True)
    scaled: Array = weights / np.where(largest == 0, 1.0, largest)
    return scaled


def _folds(pairs: Pairs, folds: int, seed: int) -> NDArray[np.intp]:
    """The fold of each pair."""
    questions = np.unique(pairs.questions)
    if len(questions) < folds:
        raise InputError(f"{len(questions)} questions cannot be parted into {folds} folds", "Name more, or fewer folds")
    shuffled = np.random.default_rng(seed).permutation(questions)
    fold = {int(question): n % folds for n, question in enumerate(shuffled)}
    return np.array([fold[int(question)] for question in pairs.questions])


def _drawn(pairs: Pairs, count: int, seed: int) -> NDArray[np.bool_]:
    """The pairs of as many questions, drawn at random, as make at least so many pairs."""
    among = np.zeros(len(pairs), dtype=bool)
    for question in np.random.default_rng(seed).permutation(np.unique(pairs.questions)):
        if among.sum() >= count:
            break
        among |= pairs.questions == question
    if among.all():
        raise InputError(f"of {len(pairs)} pairs none is left beside {count} held out", "Name more, or hold out fewer")
    return among


def _mean_by_question(values: Array, questions: NDArray[np.intp], seed: int) -> Estimate | None:
    known = ~np.isnan(values)
    _, place = np.unique(questions[known], return_inverse=True)
    sums, counts = np.bincount(place, weights=values[known]), np.bincount(place)
    return share_estimate(list(zip(sums.tolist(), counts.tolist(), strict=True)), seed)


def _shares(answer: RatedAnswer) -> Array:
    return np.array([answer.core or 0.0, answer.background or 0.0, answer.follow_up or 0.0])


def _said(better: float | None, worse: float | None) -> float:
    if better is None or worse is None:
        return float("nan")
    return 0.5 if better == worse else float(better > worse)
