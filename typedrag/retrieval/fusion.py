"""One ranked list out of several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from typedrag.records import Passage


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Passage]], constant: int = 60) -> list[Passage]:
    """Pool ranked lists: each passage once, by the sum of `1 / (constant + rank)` over the lists.

    Cormack et al. (2009), https://doi.org/10.1145/1571941.1572114. Ties keep the order in which
    the passages were first seen.

    Args:
        rankings: Lists of passages, best first.
        constant: How little the first ranks stand out; 60 is the paper's.

    Example:
        >>> a, b, c = (Passage(id=i, text=i) for i in "abc")
        >>> [p.id for p in reciprocal_rank_fusion([[a, b], [b, c]])]
        ['b', 'a', 'c']
    """
    scores: dict[str, float] = defaultdict(float)
    first_seen: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, 1):
            scores[passage.id] += 1 / (constant + rank)
            first_seen.setdefault(passage.id, passage)
    best_first = sorted(first_seen.values(), key=lambda p: -scores[p.id])
    return [replace(p, score=scores[p.id]) for p in best_first]
