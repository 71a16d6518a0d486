"""Utility of a pool's passages, silver lists (RichRAG, section 3.4.1), and measures of a ranking (appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import InputError
from typedrag.datasets.pools import Pool
from typedrag.metrics.ranking import comprehensiveness, coverage_table, greedy_ranking, ncom, ranking_measures
from typedrag.retrieval.list_network import Candidates

MEASURES = ("ndcg", "map", "ncom")
"""nDCG@k takes labels as gains; MAP takes passages with a label of `relevant_from` or more as relevant."""


def candidates_of(pool: Pool, chosen: Sequence[int] | None = None) -> Candidates:
    """The passages of a pool, or the chosen ones, as a ranker reads them."""
    passages = [pool.passages[n] for n in chosen] if chosen is not None else pool.passages
    return Candidates(pool.question, [p.passage.titled for p in passages], [pool.aspects_of(p) for p in passages])


def utility_table(pool: Pool) -> NDArray[np.float64]:
    """The coverage of each sub-answer by each passage: φ of eq. 8.

    The coverage that the pool states comes first, then ROUGE with the sub-answers, as in the paper.
    A pool that only has labels gets a `graded_table`.

    Returns:
        One row a passage, one column a sub-answer.
    """
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
    if not (pool.passages[0].coverage or pool.sub_answers or has_relevant(pool)):
        raise InputError(
            f"pool '{pool.id}' says nothing of what its passages are worth",
            "Give them a coverage or labels, or the pool sub_answers",
        )


def has_relevant(pool: Pool) -> bool:
    """True if a passage of the pool is labelled as relevant."""
    return any((p.label or 0) >= pool.relevant_from for p in pool.passages)


def graded_table(texts: Sequence[str], labels: Sequence[int], relevant_from: int = 1) -> NDArray[np.float64]:
    """The coverage table of graded passages, for pools without sub-answers.

    Each relevant passage is taken as a sub-answer: one way to answer the question. A passage covers a
    sub-answer by its ROUGE with it, times the passage's label as a share of the highest label. So better
    passages come before worse ones, and a passage that repeats those before it comes later. (With the
    label as the only column, eq. 9 would give the second passage of a list no weight at all.)

    Args:
        labels: The labels of the passages; 0 is worthless.
        relevant_from: The lowest label of passages that are taken as sub-answers.

    Example:
        The second says what the first says; the third is another answer, with half the label:

        >>> table = graded_table(["let it rise", "let it rise", "use warm milk"], [2, 2, 1])
        >>> table.tolist()
        [[1.0, 0.0], [1.0, 0.0], [0.0, 0.5]]
        >>> silver_list(table, k=3)
        [0, 2, 1]
    """
    grades = np.array(labels, dtype=float) / max(1, *labels)
    answers = list(dict.fromkeys(t for t, label in zip(texts, labels, strict=True) if label >= relevant_from))
    worth = grades > 0
    table = np.zeros((len(texts), len(answers)))
    table[worth] = coverage_table([text for text, w in zip(texts, worth, strict=True) if w], answers)
    return table * grades[:, None]


def silver_list(table: Any, k: int) -> list[int]:
    """The list that a ranker is to learn: the greedy one (eq. 8), without passages that add nothing.

    Args:
        table: See `utility_table`.

    Example:
        >>> silver_list([[0.0, 0.0], [0.5, 0.0], [0.4, 0.3], [0.0, 0.0]], k=4)
        [2, 1]
    """
    ranking = greedy_ranking(table, k)
    worth = [comprehensiveness(ranking[:n], table) for n in range(len(ranking) + 1)]
    return [passage for n, passage in enumerate(ranking) if worth[n + 1] > worth[n]]


def pool_measures(pool: Pool, ranking: Sequence[int], table: Any | None, k: int = 10) -> dict[str, float]:
    """The `MEASURES` of a ranking, as far as the pool has the labels or the table that they need.

    Args:
        ranking: Positions of the pool's passages, the best first.
        table: See `utility_table`; None leaves NCOM out.
        k: Cutoff of nDCG and NCOM.

    Example:
        >>> pool = Pool.model_validate({"id": "q", "question": "Why?", "relevant_from": 2, "passages": [
        ...     {"id": "a", "text": "no", "label": 0}, {"id": "b", "text": "so so", "label": 1},
        ...     {"id": "c", "text": "yes it is", "label": 3}]})
        >>> {name: round(value, 3) for name, value in pool_measures(pool, [1, 2, 0], None).items()}
        {'ndcg': 0.797, 'map': 0.5}
    """
    measures = {}
    ids = [pool.passages[n].id for n in ranking]
    labels = {p.id: p.label or 0 for p in pool.passages}
    if any(labels.values()):
        measures["ndcg"] = ranking_measures(ids, labels, k)["ndcg"]
    if has_relevant(pool):
        relevant = {i: int(label >= pool.relevant_from) for i, label in labels.items()}
        measures["map"] = ranking_measures(ids, relevant, k)["map"]
    if table is not None and (value := ncom(ranking[:k], table)) is not None:
        measures["ncom"] = value
    return measures
