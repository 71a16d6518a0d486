"""Which weights put answers in the order that is wanted (sub-question coverage, section 4).

An answer's rating is the weighted sum of what it covers. Of two answers to a question, the one with
the higher rating is predicted to be the better one; equal ratings count half, as lots would. Only
the ratios of weights matter.
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
"""Ratings that differ by less are equal: sums of thirds are not exact."""
_LEARN = ("tpe", "nsga2", "gp")


@dataclass(frozen=True)
class Weights:
    """Of core, background and follow-up sub-questions.

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
        """In the order of the metric `coverage`."""
        return self.core, self.background, self.follow_up


PUBLISHED = Weights(*WEIGHTS.values())
CORE_ONLY = Weights(1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Pairs:
    """Pairs of answers to the same question of which one is the better one.

    Attributes:
        covered: [pairs, 3] How much more the better one covers, of each type.
        questions: Of each pair, the position of its question, which pairs of several examples may share.
        judge: [pairs] What the LM judge scores: 1 if it is for the better one, 0.5 if it cannot tell; NaN
            if it was not asked.
    """

    covered: Array
    questions: NDArray[np.intp]
    judge: Array

    def __len__(self) -> int:
        return len(self.questions)

    def points(self, weights: Array) -> Array:
        """What weights score for each pair: 1, 0, or 0.5 for equal ratings.

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
        """The mean over pairs, with an interval for which whole questions are resampled."""
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
class Searched:
    """What a search found.

    Attributes:
        found: The weights that predict best over all pairs; of equals, those in their middle.
        trials: [n, 3] The weights that were tried on all pairs, the largest of each being 1 or -1.
        accuracies: [n] Theirs, over all pairs.
        accuracy: Of weights found without the pairs that they are measured on, by cross-validation.
        fitted: Of `found` on the pairs that they were found by: too good, by how much `accuracy` says.
        folds: The weights that were found without each fold.
        baselines: By name: the published weights, core alone, and the LM judge where it was asked.
        gains: `accuracy` less that of each baseline, pair by pair.
        n: Pairs.
    """

    found: Weights
    trials: Array
    accuracies: Array
    accuracy: Estimate | None
    fitted: Estimate | None
    folds: tuple[Weights, ...]
    baselines: Mapping[str, Estimate]
    gains: Mapping[str, Estimate]
    n: int


def search_weights(
    pairs: Pairs, *, sampler: WeightsSampler | None = None, trials: int = 2000, folds: int = 5, seed: int = 0
) -> Searched:
    """Search weights, and say by cross-validation how well such a search does. No LM is asked.

    Args:
        sampler: Who chooses; one that learns is let learn anew for each fold, from the other folds alone.
        folds: Of the cross-validation; a question's pairs are in one fold.

    Raises:
        InputError: If there are fewer questions than folds.
    """
    sampler = sampler or WeightsSampler()
    fold_of = _folds(pairs, folds, seed)
    every = np.ones(len(pairs), dtype=bool)
    tried = _candidates(pairs, every, sampler, trials)
    points = pairs.points(tried)
    found = _best(tried, points.mean(axis=1))
    held_out, found_without = np.empty(len(pairs)), []
    for fold in range(folds):
        rest = fold_of != fold
        if sampler.name in _LEARN:
            others = _candidates(pairs, rest, sampler, trials)
            best = _best(others, pairs.points(others)[:, rest].mean(axis=1))
        else:
            best = _best(tried, points[:, rest].mean(axis=1))
        found_without.append(Weights(*map(float, best)))
        held_out[~rest] = pairs.points(best[None])[0, ~rest]
    compared = _baselines(pairs)
    baselines = {name: _mean_by_question(p, pairs.questions, seed) for name, p in compared.items()}
    gains = {name: _mean_by_question(held_out - p, pairs.questions, seed) for name, p in compared.items()}
    return Searched(
        found=Weights(*map(float, found)),
        trials=tried,
        accuracies=points.mean(axis=1),
        accuracy=pairs.accuracy(held_out, seed),
        fitted=pairs.accuracy(pairs.points(found[None])[0], seed),
        folds=tuple(found_without),
        baselines={name: e for name, e in baselines.items() if e is not None},
        gains={name: e for name, e in gains.items() if e is not None},
        n=len(pairs),
    )


def _baselines(pairs: Pairs) -> dict[str, Array]:
    found = {
        f"published weights, {PUBLISHED}": pairs.points(np.array([PUBLISHED.as_tuple]))[0],
        "core alone": pairs.points(np.array([CORE_ONLY.as_tuple]))[0],
    }
    if not np.isnan(pairs.judge).all():
        found["LM judge"] = pairs.judge
    return found


def _candidates(pairs: Pairs, among: NDArray[np.bool_], sampler: WeightsSampler, trials: int) -> Array:
    """Weights to try, as a sampler chooses them for these pairs."""
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
    """The weights with the best accuracy; of equals, those nearest to their mean: what is in the middle of many
    that do as well is there for no chance reason."""
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
