"""Utility of a pool's passages, silver lists (RichRAG, section 3.4.1), and measures of rankers (appendix C)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import InputError
from typedrag.core.records import Estimate, fallbacks
from typedrag.datasets.richrag import Pool
from typedrag.experiments.held_out import Pair, estimate_difference, held_out_test
from typedrag.lms.trace import Stopwatch, collect_steps
from typedrag.metrics.estimate import mean_estimate
from typedrag.metrics.ranking import comprehensiveness, coverage_table, greedy_ranking, ncom, ranking_measures
from typedrag.retrieval import AspectReranker, Reranker
from typedrag.retrieval.list_network import Candidates
from typedrag.text.words import question_key

MEASURES = ("ndcg", "map", "ncom")
"""nDCG@k takes labels as gains; MAP takes passages with a label of `relevant_from` or more as relevant."""


def ranker_candidates(pool: Pool, chosen: Sequence[int] | None = None) -> Candidates:
    """The passages of a pool, or the chosen ones, as a ranker reads them."""
    passages = [pool.passages[n] for n in chosen] if chosen is not None else pool.passages
    return Candidates(pool.question, [p.passage.titled for p in passages], [pool.passage_aspects(p) for p in passages])


def utility_table(pool: Pool) -> NDArray[np.float64]:
    """The coverage of each sub-answer by each passage: φ of eq. 8."""
    check_worth(pool)
    stated = [p.coverage for p in pool.passages if p.coverage is not None]
    if stated:
        return np.array(stated, dtype=float)
    texts = [p.text for p in pool.passages]
    if pool.sub_answers:
        return coverage_table(texts, pool.sub_answers)
    return graded_table(texts, [p.label or 0 for p in pool.passages], pool.relevant_from)


def check_worth(pool: Pool) -> None:
    """Refuse a pool that has no `utility_table`, without computing one."""
    relevant = any((p.label or 0) >= pool.relevant_from for p in pool.passages)
    if not (pool.passages[0].coverage or pool.sub_answers or relevant):
        raise InputError(
            f"pool '{pool.id}' says nothing of what its passages are worth",
            "Give them a coverage or labels, or the pool sub_answers",
        )


def graded_table(texts: Sequence[str], labels: Sequence[int], relevant_from: int = 1) -> NDArray[np.float64]:
    """The coverage table of graded passages, for pools without sub-answers."""
    grades = np.array(labels, dtype=float) / max(1, *labels)
    answers = list(dict.fromkeys(t for t, label in zip(texts, labels, strict=True) if label >= relevant_from))
    worth = grades > 0
    table = np.zeros((len(texts), len(answers)))
    table[worth] = coverage_table([text for text, w in zip(texts, worth, strict=True) if w], answers)
    return table * grades[:, None]


def silver_list(table: Any, k: int) -> list[int]:
    """The list that a ranker is to learn: the greedy one (eq. 8), without passages that add nothing."""
    ranking = greedy_ranking(table, k)
    worth = [comprehensiveness(ranking[:n], table) for n in range(len(ranking) + 1)]
    return [passage for n, passage in enumerate(ranking) if worth[n + 1] > worth[n]]


def pool_measures(pool: Pool, ranking: Sequence[int], table: Any | None, k: int = 10) -> dict[str, float]:
    """The `MEASURES` of a ranking, as far as the pool has the labels or the table that they need."""
    measures = {}
    ids = [pool.passages[n].id for n in ranking]
    labels = {p.id: p.label or 0 for p in pool.passages}
    if any(labels.values()):
        measures["ndcg"] = ranking_measures(ids, labels, k)["ndcg"]
    relevant = {i: int(label >= pool.relevant_from) for i, label in labels.items()}
    if any(relevant.values()):
        measures["map"] = ranking_measures(ids, relevant, k)["map"]
    if table is not None and (value := ncom(ranking[:k], table)) is not None:
        measures["ncom"] = value
    return measures


@dataclass(frozen=True)
class RankerScores:
    """One ranker's measures."""

    ranker: str
    values: Mapping[str, Mapping[str, float]]  # values by measure, then by the pool's id
    means: Mapping[str, Estimate]  # means by measure, with bootstrap intervals over pools
    seconds: float  # the median time for a pool
    failed: int  # pools ranked without an LM reply because it could not be read


@dataclass(frozen=True)
class RankerComparison:
    """The gain of the first ranker over another one."""

    measure: str  # one of `MEASURES`
    baseline: str  # the other ranker's spec
    # the mean difference over the pools that both were measured on, with its paired bootstrap interval
    difference: Estimate
    # p-value of the test of the first measure, corrected for the number of other rankers; None for other measures
    p: float | None


@dataclass(frozen=True)
class RankerReport:
    """Measures of rankers on the same pools."""

    pools: int
    k: int  # cutoff of nDCG and NCOM
    scores: tuple[RankerScores, ...]  # the scores of each ranker, in the order given
    comparisons: tuple[RankerComparison, ...]  # comparisons of the first ranker with all others


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


def rank_pool(ranker: Reranker, pool: Pool, k: int | None = None) -> list[int]:
    """The places of the k best passages of a pool, by default of all, best first."""
    passages = [p.passage for p in pool.passages]
    k = k or len(passages)
    if isinstance(ranker, AspectReranker):
        aspects = {p.id: pool.passage_aspects(p) for p in pool.passages}
        ranked = ranker.rerank_by_aspects(pool.question, passages, k, aspects)
    else:
        ranked = ranker.rerank(pool.question, passages, k)
    place = {p.id: n for n, p in enumerate(passages)}
    return [place[p.id] for p in ranked]


def compare_rankers(
    scores: Sequence[RankerScores], seed: int = 0, questions: Mapping[str, str] | None = None
) -> list[RankerComparison]:
    """Compare the first ranker with each of the others by each measure; pools of a question are resampled together."""
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
