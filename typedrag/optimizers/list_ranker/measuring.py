"""How good the ranking of a pool is (RichRAG, appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typedrag.datasets.pools import Pool
from typedrag.metrics.ranking import ncom, ranking_measures
from typedrag.optimizers.list_ranker.utility import has_relevant

MEASURES = ("ndcg", "map", "ncom")
"""nDCG@k gains what labels say; MAP takes those from `relevant_from` on as relevant."""


def pool_measures(pool: Pool, ranking: Sequence[int], table: Any | None, k: int = 10) -> dict[str, float]:
    """Those of `MEASURES` that a pool has what is needed for.

    Args:
        pool: What was ranked.
        ranking: Positions of its passages, the best first.
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
