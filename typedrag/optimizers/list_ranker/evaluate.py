"""How good rankers are on pools, and how surely one is better than others (RichRAG, appendix C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from typedrag.datasets.pools import Pool
from typedrag.experiments.compare.statistics import by_group, correct_p_values, paired_bootstrap, permutation_p_values
from typedrag.lms.trail import Stopwatch, recording
from typedrag.metrics.arithmetic.estimate import mean_estimate
from typedrag.optimizers.list_ranker.utility import MEASURES, pool_measures, utility_table
from typedrag.records import Estimate, fallbacks
from typedrag.retrieval import AspectReranker, Reranker
from typedrag.texts.words import question_key


@dataclass(frozen=True)
class RankerScores:
    """One ranker's measures.

    Attributes:
        values: By measure, then by the pool's id.
        means: By measure, with bootstrap intervals over pools.
        seconds: Of a pool, in the median.
        failed: Pools of which a ranker that asks the LM could not read a reply: it goes on without it.
    """

    ranker: str
    values: Mapping[str, Mapping[str, float]]
    means: Mapping[str, Estimate]
    seconds: float
    failed: int


@dataclass(frozen=True)
class RankerComparison:
    """By how much the first ranker is better than another one.

    Attributes:
        measure: One of `MEASURES`.
        baseline: The spec of the other.
        difference: The mean over the pools that both were measured on, with its paired bootstrap interval.
        p: Of the paired permutation test, corrected for all comparisons of the report.
    """

    measure: str
    baseline: str
    difference: Estimate
    p: float | None


@dataclass(frozen=True)
class RankerReport:
    """Rankers on the same pools.

    Attributes:
        k: Cutoff of nDCG and NCOM.
        scores: Of each ranker, in the order given.
        comparisons: Of the first ranker with all others.
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
    """Rank all pools with all rankers.

    Args:
        pools: With labels, a coverage or sub-answers.
        rankers: By their specs. The first is compared with the others; `none` keeps the retriever's
            order. One that reads sub-aspects is given them.
        k: Cutoff of nDCG and NCOM.
        on_progress: Told how many pools a ranker has ranked.

    Raises:
        InputError: If a pool says nothing of what its passages are worth.
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
        with recording() as steps:
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
    """For the id of each pool what it is resampled with: its question."""
    return {pool.id: question_key(pool.question) for pool in pools}


def rank_pool(ranker: Reranker, pool: Pool) -> list[int]:
    """The positions of a pool's passages in the order of a ranker."""
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
    """The first ranker against each of the others, measure by measure; `groups` are what pools are resampled with."""
    groups = groups or {}
    first = scores[0]
    found = []
    differences = []
    for measure in first.values:
        for other in scores[1:]:
            shared = [i for i in first.values[measure] if i in other.values.get(measure, {})]
            ours, theirs = ([s.values[measure][i] for i in shared] for s in (first, other))
            units = [groups.get(i, i) for i in shared]
            if paired := paired_bootstrap(ours, theirs, groups=units, seed=seed):
                found.append((measure, other.ranker, paired.difference))
                differences.append(by_group([a - b for a, b in zip(ours, theirs, strict=True)], units))
    p_values = correct_p_values(permutation_p_values(differences, seed=seed))
    return [RankerComparison(*said, p) for said, p in zip(found, p_values, strict=True)]
