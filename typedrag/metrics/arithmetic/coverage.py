"""Sub-question coverage: the sub-questions that an answer and its passages cover
(sub-question coverage, sections 3.2 and 4).

All values are shares: 0.36 is the paper's 36 %. Sub-questions of all questions are pooled, as in the
paper; to weigh every question equally, take the mean of values computed question by question. A value
is None if its denominator is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from typedrag.core.question_types import SubQuestionType

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType.CORE, SubQuestionType.BACKGROUND, SubQuestionType.FOLLOW_UP

WEIGHTS: Mapping[SubQuestionType, float] = {CORE: 1.0, BACKGROUND: 0.5, FOLLOW_UP: -1.0}
"""Found by the paper's grid search against human preferences (section 4)."""
CORE_ONLY: Mapping[SubQuestionType, float] = {CORE: 1.0, BACKGROUND: 0.0, FOLLOW_UP: 0.0}
"""The weights of its table 3, core only."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgment of one sub-question, for one program's answer.

    Attributes:
        type: The type of the sub-question.
        answered: Whether the answer covers it.
        retrieved: Whether each passage covers it; empty if none was retrieved.
        position: The place where the answer begins to address it, as a share of its words
            (see `locate_fragment`); None if it does not, or the place is not known.
    """

    type: SubQuestionType
    answered: bool
    retrieved: tuple[bool, ...] = ()
    position: float | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario of the sub-question."""
        if self.answered:
            return Scenario.BOTH if any(self.retrieved) else Scenario.ANSWERED_ONLY
        return Scenario.RETRIEVED_ONLY if any(self.retrieved) else Scenario.NEITHER


class Scenario(StrEnum):
    """Coverage of a sub-question by the answer, and by at least one of the passages."""

    NEITHER = "neither"
    RETRIEVED_ONLY = "retrieved-only"
    ANSWERED_ONLY = "answered-only"
    BOTH = "both"


def scenarios(judged: Sequence[Judged], type: SubQuestionType) -> dict[Scenario, float] | None:
    """The share of each scenario among the sub-questions of a type; the four sum to 1 (table 1).

    Example:
        >>> core = [Judged(CORE, True, (True, False)), Judged(CORE, False, (False, False))]
        >>> {s.value: share for s, share in scenarios(core, CORE).items()}
        {'neither': 0.5, 'retrieved-only': 0.0, 'answered-only': 0.0, 'both': 0.5}
    """
    counts = Counter(j.scenario for j in _of(judged, type))
    if not counts:
        return None
    return {scenario: counts[scenario] / counts.total() for scenario in Scenario}


def answer_coverage(judged: Sequence[Judged], type: SubQuestionType) -> float | None:
    """Metric 1: the share of a type's sub-questions that the answers cover.

    Example:
        >>> answer_coverage([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)], CORE)
        0.5
        >>> answer_coverage([Judged(CORE, True)], BACKGROUND) is None
        True
    """
    return _share(_of(judged, type), lambda j: j.answered)


def retrieval_coverage(judged: Sequence[Judged], type: SubQuestionType) -> float | None:
    """Metric 2: the share of a type's sub-questions that at least one passage covers.

    Example:
        >>> retrieval_coverage([Judged(CORE, False, (False, True)), Judged(CORE, False, (False, False))], CORE)
        0.5
    """
    return _share(_of(judged, type), lambda j: any(j.retrieved))


def knowledge_identification(judged: Sequence[Judged]) -> float | None:
    """Metric 3: the share that answers cover of the core sub-questions that passages cover.

    Example:
        >>> seen = [Judged(CORE, True, (True,)), Judged(CORE, False, (True,)), Judged(CORE, True, (False,))]
        >>> knowledge_identification(seen)
        0.5
    """
    return _share([j for j in _of(judged, CORE) if any(j.retrieved)], lambda j: j.answered)


def retrieval_potential(judged: Sequence[Judged]) -> float | None:
    """Metric 4: the share that no passage covers of the core sub-questions that answers leave open.

    Better retrieval could close these. The share is 1 if nothing was retrieved.

    Example:
        >>> retrieval_potential([Judged(CORE, False, (True,)), Judged(CORE, False, (False,)), Judged(CORE, True)])
        0.5
    """
    return _share([j for j in _of(judged, CORE) if not j.answered], lambda j: not any(j.retrieved))


def frequency_correlation(judged: Sequence[Judged]) -> float | None:
    """Metric 5: the difference in covering passages between core sub-questions that answers cover and others.

    The mean share of covering passages over the answered core sub-questions, less that over the
    others; from -1 to 1. Sub-questions for which nothing was retrieved are left out.

    Example:
        >>> frequency_correlation([Judged(CORE, True, (True, True)), Judged(CORE, False, (True, False))])
        0.5
    """
    with_passages = [j for j in _of(judged, CORE) if j.retrieved]
    covered = [fmean(j.retrieved) for j in with_passages if j.answered]
    not_covered = [fmean(j.retrieved) for j in with_passages if not j.answered]
    return fmean(covered) - fmean(not_covered) if covered and not_covered else None


def position_alignment(judged: Sequence[Judged]) -> float | None:
    """Metric 6: the distance by which answers address follow-up sub-questions later than the others.

    The mean position of follow-up, less the mean of the positions of core and background; from -1 to 1.
    None unless answers address all three types.

    Example:
        >>> places = {CORE: 0.2, BACKGROUND: 0.4, FOLLOW_UP: 0.9}
        >>> round(position_alignment([Judged(t, True, position=p) for t, p in places.items()]), 3)
        0.6
    """
    positions = {
        type: [j.position for j in _of(judged, type) if j.answered and j.position is not None]
        for type in SubQuestionType
    }
    if not all(positions.values()):
        return None
    mean = {type: fmean(values) for type, values in positions.items()}
    return mean[FOLLOW_UP] - (mean[CORE] + mean[BACKGROUND]) / 2


def coverage_measures(judged: Sequence[Judged]) -> dict[str, float]:
    """Metrics 1 to 6 by name, without those that are undefined.

    Metric 1 is `answered_core`, `answered_background`, `answered_follow_up`; metric 2 is
    `retrieved_core` and so on; the others have the names of their functions.

    Example:
        >>> coverage_measures([Judged(CORE, True, (False,)), Judged(FOLLOW_UP, False, (True,))])
        {'answered_core': 1.0, 'answered_follow_up': 0.0, 'retrieved_core': 0.0, 'retrieved_follow_up': 1.0}
    """
    values = {
        **{f"answered_{type.name.lower()}": answer_coverage(judged, type) for type in SubQuestionType},
        **{f"retrieved_{type.name.lower()}": retrieval_coverage(judged, type) for type in SubQuestionType},
        "knowledge_identification": knowledge_identification(judged),
        "retrieval_potential": retrieval_potential(judged),
        "frequency_correlation": frequency_correlation(judged),
        "position_alignment": position_alignment(judged),
    }
    return {name: value for name, value in values.items() if value is not None}


def rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The weighted sum of an answer's coverage by type (section 4); for one question.

    Only answers to the same question compare, since they share its sub-questions. Types without a
    sub-question or without a weight are left out. None if that leaves no type.

    Example:
        >>> rating([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)])
        -0.5
        >>> rating([Judged(CORE, True), Judged(FOLLOW_UP, True)], weights={CORE: 1.0})
        1.0
    """
    covered = _covered(judged, weights)
    return sum(weights[type] * share for type, share in covered.items()) if covered else None


def scaled_rating(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float] = WEIGHTS) -> float | None:
    """The rating as a score: 0 is the worst that the question's sub-questions allow, 1 the best.

    The best covers all sub-questions whose weight is positive and none whose weight is negative.

    Example:
        >>> scaled_rating([Judged(CORE, True), Judged(CORE, False), Judged(FOLLOW_UP, True)])
        0.25
        >>> scaled_rating([Judged(FOLLOW_UP, False)])
        1.0
    """
    covered = _covered(judged, weights)
    worst = sum(min(weights[type], 0.0) for type in covered)
    best = sum(max(weights[type], 0.0) for type in covered)
    if best == worst:
        return None
    # term by term, so that rounding cannot leave [0, 1]
    good = sum(abs(weights[type]) * (share if weights[type] > 0 else 1 - share) for type, share in covered.items())
    return min(good / (best - worst), 1.0)


def _covered(judged: Sequence[Judged], weights: Mapping[SubQuestionType, float]) -> dict[SubQuestionType, float]:
    shares = {type: answer_coverage(judged, type) for type in weights}
    return {type: share for type, share in shares.items() if share is not None}


def _of(judged: Sequence[Judged], type: SubQuestionType) -> list[Judged]:
    return [j for j in judged if j.type == type]


def _share(judged: Sequence[Judged], holds: Callable[[Judged], bool]) -> float | None:
    return fmean(holds(j) for j in judged) if judged else None
