"""Measures of rankers on pools, with significance tests of the first against the others (RichRAG, appendix C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from typedrag.core.records import Estimate, fallbacks
from typedrag.datasets.richrag import Pool
from typedrag.experiments.held_out import Pair, estimate_difference, held_out_test
from typedrag.lms.trace import Stopwatch, collect_steps
from typedrag.metrics.estimate import mean_estimate
from typedrag.optimizers.list_ranker.utility import MEASURES, pool_measures, utility_table
from typedrag.retrieval import AspectReranker, Reranker
from typedrag.text.words import question_key


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
    """
    tables = [utility_table(pool) for pool in pools]
    questions = {pool.id: question_key(pool.question) for pool in pools}  # pools of one are resampled together
    scores = []
    for name, ranker in rankers.items():
        values: dict[str, dict[str, float]] = {}
        seconds, failed = [], 0
        for number, (pool, table) in enumerate(zip(pools, tables, strict=True), 1):
            watch = Stopwatch()
            with collect_steps() as steps:
                ranking = rank_pool(ranker, pool)
            seconds.append(watch.seconds)
            failed += bool(fallbacks(steps))
            for measure, value in pool_measures(pool, ranking, table, k).items():
                values.setdefault(measure, {})[pool.id] = value
            on_progress(name, number)
        means = {
            measure: estimate
            for measure in MEASURES
            if (of_pools := values.get(measure))
            and (estimate := mean_estimate(list(of_pools.values()), seed, groups=[questions[i] for i in of_pools]))
        }
        scores.append(RankerScores(name, values, means, median(seconds), failed))
    return RankerReport(len(pools), k, tuple(scores), tuple(compare_rankers(scores, seed, questions)))


def rank_pool(ranker: Reranker, pool: Pool) -> list[int]:
    """The positions of a pool's passages, in the order that a ranker gives them."""
    passages = [p.passage for p in pool.passages]
    if isinstance(ranker, AspectReranker):
        aspects = {p.id: pool.passage_aspects(p) for p in pool.passages}
        ranked = ranker.rerank_by_aspects(pool.question, passages, len(passages), aspects)
    else:
        ranked = ranker.rerank(pool.question, passages, len(passages))
    place = {p.id: n for n, p in enumerate(passages)}
    return [place[p.id] for p in ranked]


def compare_rankers(
    scores: Sequence[RankerScores], seed: int = 0, questions: Mapping[str, str] | None = None
) -> list[RankerComparison]:
    """Compare the first ranker with each of the others by each measure; pools of a question are resampled together.

    By the first measure that the pools allow, rankers are tested; by the others, they are not.
    """
    questions, (first, *others), compared = questions or {}, scores, []
    for number, (measure, ours) in enumerate(first.values.items()):
        pairs = []
        for other in others:
            theirs = other.values.get(measure, {})
            shared = [i for i in ours if i in theirs]
            pair = ([theirs[i] for i in shared], [ours[i] for i in shared], [questions.get(i, i) for i in shared])
            pairs.append(Pair(*pair))
        tested = [estimate_difference(p, seed=seed) for p in pairs] if number else held_out_test(pairs, seed=seed)
        compared += [
            RankerComparison(measure, other.ranker, verdict.difference, verdict.corrected_p)
            for other, verdict in zip(others, tested, strict=True)
            if verdict.difference
        ]
    return compared
