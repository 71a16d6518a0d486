"""Scores of ranks among references (Typed-RAG, section 4.1), and the scores of chance.

Ranks count from 1, the best. The worst rank among n references depends on the convention: n, as in
Typed-RAG, where the candidate shares a place with the worst reference, or n + 1, as in the LINKAGE
paper, where it can come after all of them. Ranks of the two conventions do not compare. Expected
ranks need not be whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from statistics import fmean


class Convention(StrEnum):
    """A convention of the ranks that an answer can have among n references.

    Example:
        >>> [c.worst_rank(4) for c in Convention]
        [4, 5]
    """

    TYPED_RAG = "typed-rag"
    LINKAGE = "linkage"

    def worst_rank(self, references: int) -> int:
        """The worst rank among some references."""
        return references if self is Convention.TYPED_RAG else references + 1


def reciprocal_rank(rank: float) -> float:
    """The reciprocal of a rank: 1 for the best.

    Example:
        >>> reciprocal_rank(4)
        0.25
    """
    _check_rank(rank)
    return 1 / rank


def percentile_rank(rank: float, references: int) -> float:
    """A rank's place within a list of references, in percent: 100 for the best (eq. 4, one term).

    Of n references, rank n gets 100/n, and rank n + 1 gets 0.

    Example:
        >>> [percentile_rank(rank, references=4) for rank in (1, 2, 4, 5)]
        [100.0, 75.0, 25.0, 0.0]
    """
    _check_rank(rank)
    if rank > references + 1:
        raise ValueError(f"rank {rank} is beyond {references} references")
    return (1 - (rank - 1) / references) * 100


def mrr(ranks: Iterable[float]) -> float:
    """Mean reciprocal rank, from 0 to 1 (eq. 3).

    Example:
        >>> mrr([1, 2, 4])
        0.5833333333333334
    """
    return fmean(reciprocal_rank(rank) for rank in ranks)


def mpr(ranks: Iterable[tuple[float, int]]) -> float:
    """Mean percentile rank, from 0 to 100 (eq. 4).

    Args:
        ranks: Ranks, each with the number of references it is among.

    Example:
        >>> mpr([(1, 4), (2, 2)])
        75.0
    """
    return fmean(percentile_rank(rank, references) for rank, references in ranks)


def chance_mrr(references: int, convention: Convention = Convention.TYPED_RAG) -> float:
    """The mean reciprocal rank of a judge who draws ranks at random.

    Example:
        >>> round(chance_mrr(4), 3), round(chance_mrr(4, Convention.LINKAGE), 3)
        (0.521, 0.457)
    """
    return mrr(_all_ranks(references, convention))


def chance_mpr(references: int, convention: Convention = Convention.TYPED_RAG) -> float:
    """The mean percentile rank of a judge who draws ranks at random.

    Example:
        >>> chance_mpr(4), chance_mpr(4, Convention.LINKAGE)
        (62.5, 50.0)
    """
    return mpr((rank, references) for rank in _all_ranks(references, convention))


def expected_rank(probabilities: Mapping[int, float]) -> float:
    """The mean of the allowed ranks, weighted by the judge's probabilities of them.

    Args:
        probabilities: The probabilities of the allowed ranks. They need not sum to 1, since other tokens
            have probabilities too: they are scaled to do so.

    Example:
        >>> expected_rank({1: 0.5, 2: 0.25, 4: 0.25})
        2.0
        >>> expected_rank({1: 0.3, 2: 0.1})
        1.25
    """
    for rank, probability in probabilities.items():
        _check_rank(rank)
        if probability < 0:
            raise ValueError(f"rank {rank} has the probability {probability}")
    # scaled by the greatest first, so that tiny probabilities are not lost in the sum
    greatest = max(probabilities.values(), default=0.0)
    if not greatest > 0:
        raise ValueError("no allowed rank has a probability above 0")
    weights = {rank: probability / greatest for rank, probability in probabilities.items()}
    return sum(rank * weight for rank, weight in weights.items()) / sum(weights.values())


def _all_ranks(references: int, convention: Convention) -> range:
    if references < 1:
        raise ValueError(f"{references} references leave nothing to rank among")
    return range(1, convention.worst_rank(references) + 1)


def _check_rank(rank: float) -> None:
    if not rank >= 1:
        raise ValueError(f"{rank} is no rank: ranks count from 1")
