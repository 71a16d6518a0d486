"""Measures of rankers on pools, with significance tests of the first against the others (RichRAG, appendix C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from typedrag.datasets.pools import Pool
from typedrag.experiments.held_out import Pair, estimate_difference, held_out_test
from typedrag.lms.trace import Stopwatch, collect_steps
from typedrag.metrics.arithmetic.estimate import mean_estimate
from typedrag.optimizers.list_ranker.utility import MEASURES, pool_measures, utility_table
from typedrag.records import Estimate, fallbacks
from typedrag.retrieval import AspectReranker, Reranker
from typedrag.texts.words import question_key


@dataclass(frozen=True)
class RankerScores:
    """One ranker's measures.

    Attributes:
        values: Values by measure, then by the pool's id.
        means: Means by measure, with bootstrap intervals over pools.
        seconds: The median time for a pool.
        failed: Pools ranked without an LM reply because it could not be read.
    """

    ranker: str
    values: Mapping[str, Mapping[str, float]]
    means: Mapping[str, Estimate]
    seconds: float
    failed: int


@dataclass(frozen=True)
class RankerComparison:
    """The gain of the first ranker over another one.

    Attributes:
        measure: One of `MEASURES`.
        baseline: The other ranker's spec.
        difference: The mean difference over the pools that both were measured on, with its paired bootstrap interval.
        p: p-value of the test of the first measure, corrected for the number of other rankers; None for other measures.
    """

    measure: str
    baseline: str
    difference: Estimate
    p: float | None


@dataclass(frozen=True)
class RankerReport:
    """Measures of rankers on the same pools.

    Attributes:
        k: Cutoff of nDCG and NCOM.
        scores: The scores of each ranker, in the order given.
        comparisons: Comparisons of the first ranker with all others.
    """

    pools: int
    k: int
    scores: tuple[RankerScores, ...]
    comparisons: tuple[RankerComparison, ...]


def evaluate_rankers(
    pools: Sequence[Pool],
    rankers: Mapping[str, Reranker],
    *,
    k: int = 10,
    seed: int = 0,
    on_progress: Callable[[str, int], object] = lambda ranker, done: None,
) -> RankerReport:
    """Rank all pools with all rankers, and measure the rankings.

    Args:
        pools: Pools with labels, a coverage or sub-answers.
        rankers: Rankers by their specs. The first is compared with the others; `none` keeps the retriever's
            order. A ranker that reads sub-aspects gets them.
        k: Cutoff of nDCG and NCOM.
        on_progress: Called with a ranker's spec and the number of pools it has ranked.

    Raises:
        InputError: If a pool has neither labels, nor a coverage, nor sub-answers.
        RetrievalError: If a ranker cannot be used.
    """
    tables = [utility_table(pool) for pool in pools]
    scores = tuple(_scores(name, ranker, pools, tables, k, seed, on_progress) for name, ranker in rankers.items())
    return RankerReport(len(pools), k, scores, tuple(compare_rankers(scores, seed, groups_of(pools))))


def _scores(
    name: str,
    ranker: Reranker,
    pools: Sequence[Pool],
    tables: Sequence[Any],
    k: int,
    seed: int,
    on_progress: Callable[[str, int], object],
) -> RankerScores:
    values: dict[str, dict[str, float]] = {}
    seconds, failed = [], 0
    for number, (pool, table) in enumerate(zip(pools, tables, strict=True)):
        watch = Stopwatch()
        with collect_steps() as steps:
            ranking = rank_pool(ranker, pool)
        seconds.append(watch.seconds)
        failed += bool(fallbacks(steps))
        for measure, value in pool_measures(pool, ranking, table, k).items():
            values.setdefault(measure, {})[pool.id] = value
        on_progress(name, number + 1)
    groups = groups_of(pools)
    means = {
        m: mean_estimate(list(values[m].values()), seed, groups=[groups[i] for i in values[m]])
        for m in MEASURES
        if m in values
    }
    return RankerScores(name, values, {m: e for m, e in means.items() if e is not None}, median(seconds), failed)


def groups_of(pools: Sequence[Pool]) -> dict[str, str]:
    """The key of each pool's question, by the pool's id: pools of one question are resampled together."""
    return {pool.id: question_key(pool.question) for pool in pools}


def rank_pool(ranker: Reranker, pool: Pool) -> list[int]:
    """The positions of a pool's passages, in the order that a ranker gives them."""
    passages = [p.passage for p in pool.passages]
    if isinstance(ranker, AspectReranker):
        aspects = {p.id: pool.aspects_of(p) for p in pool.passages}
        ranked = ranker.rerank_by_aspects(pool.question, passages, len(passages), aspects)
    else:
        ranked = ranker.rerank(pool.question, passages, len(passages))
    place = {p.id: n for n, p in enumerate(passages)}
    return [place[p.id] for p in ranked]


def compare_rankers(
    scores: Sequence[RankerScores], seed: int = 0, groups: Mapping[str, str] | None = None
) -> list[RankerComparison]:
    """Compare the first ranker with each of the others by each measure; pools of a group are resampled together.

    By the first measure that the pools allow, rankers are tested; by the others, they are not.
    """
    groups, (first, *others) = groups or {}, scores
    compared = []
    for number, measure in enumerate(first.values):
        pairs = [_pair(first.values[measure], other.values.get(measure, {}), groups) for other in others]
        tested = [estimate_difference(p, seed=seed) for p in pairs] if number else held_out_test(pairs, seed=seed)
        compared += [
            RankerComparison(measure, other.ranker, verdict.difference, verdict.corrected_p)
            for other, verdict in zip(others, tested, strict=True)
            if verdict.difference
        ]
    return compared


def _pair(ours: Mapping[str, float], theirs: Mapping[str, float], groups: Mapping[str, str]) -> Pair:
    shared = [i for i in ours if i in theirs]
    return Pair([theirs[i] for i in shared], [ours[i] for i in shared], [groups.get(i, i) for i in shared])
