from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.core.question_types import SubQuestionType
from typedrag.metrics.sub_question_coverage import (
    WEIGHTS,
    Judged,
    Scenario,
    answer_coverage,
    coverage_measures,
    rating,
    scaled_rating,
    scenarios,
)
from typedrag.sub_questions.evidence import locate_fragment

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType
weights = st.fixed_dictionaries({}, optional=dict.fromkeys(SubQuestionType, st.floats(-2, 2)))


@st.composite
def judgments(draw: st.DrawFn) -> list[Judged]:
    passages = draw(st.integers(0, 4))
    one = st.builds(
        Judged,
        st.sampled_from(SubQuestionType),
        st.booleans(),
        st.tuples(*[st.booleans()] * passages),
        st.none() | st.floats(0.01, 1),
    )
    return draw(st.lists(one, max_size=25))


def _table(type: SubQuestionType, neither: int, retrieved_only: int, answered_only: int, both: int) -> list[Judged]:
    """Sub-questions with these counts, of one passage each."""
    return [
        *[Judged(type, False, (False,))] * neither,
        *[Judged(type, False, (True,))] * retrieved_only,
        *[Judged(type, True, (False,))] * answered_only,
        *[Judged(type, True, (True,))] * both,
    ]


YOU_COM = [*_table(CORE, 26, 32, 9, 33), *_table(BACKGROUND, 32, 48, 3, 17), *_table(FOLLOW_UP, 56, 30, 4, 10)]
"""Column You.com of the paper's table 1."""


def test_the_tables_of_the_paper_follow_from_one_another() -> None:
    """Table 2 for You.com, from the percentages of table 1 (metric 5 needs the single passages)."""
    found = {name: round(value, 2) for name, value in coverage_measures(YOU_COM).items()}
    del found["frequency_correlation"]
    assert found == {
        "answered_core": 0.42,
        "answered_background": 0.20,
        "answered_follow_up": 0.14,
        "retrieved_core": 0.65,
        "retrieved_background": 0.65,
        "retrieved_follow_up": 0.40,
        "knowledge_identification": 0.51,
        "retrieval_potential": 0.45,
    }


def test_the_four_scenarios() -> None:
    assert scenarios(YOU_COM, CORE) == {
        Scenario.NEITHER: 0.26,
        Scenario.RETRIEVED_ONLY: 0.32,
        Scenario.ANSWERED_ONLY: 0.09,
        Scenario.BOTH: 0.33,
    }


@given(judgments(), st.randoms())
def test_measures_are_bounded_whatever_the_order(judged: list[Judged], random) -> None:
    measures = coverage_measures(judged)
    assert measures == pytest.approx(coverage_measures(random.sample(judged, len(judged))))
    for name, value in measures.items():
        low = -1 if name in ("frequency_correlation", "position_alignment") else 0
        assert low <= value <= 1


@given(judgments())
def test_metrics_are_those_of_the_scenarios(judged: list[Judged]) -> None:
    measures = coverage_measures(judged)
    for type in SubQuestionType:
        shares = scenarios(judged, type)
        if shares is None:
            assert answer_coverage(judged, type) is measures.get(f"retrieved_{type.name.lower()}") is None
            continue
        assert sum(shares.values()) == pytest.approx(1)
        answered = shares[Scenario.BOTH] + shares[Scenario.ANSWERED_ONLY]
        retrieved = shares[Scenario.BOTH] + shares[Scenario.RETRIEVED_ONLY]
        assert answer_coverage(judged, type) == pytest.approx(answered)
        assert measures[f"retrieved_{type.name.lower()}"] == pytest.approx(retrieved)
        if type is CORE:
            assert measures.get("knowledge_identification", 0) * retrieved == pytest.approx(shares[Scenario.BOTH])
            assert measures.get("retrieval_potential", 0) * (1 - answered) == pytest.approx(shares[Scenario.NEITHER])


def test_pooled_is_not_the_mean_of_questions() -> None:
    one, other = [Judged(CORE, True)], [Judged(CORE, False)] * 3
    assert answer_coverage(one + other, CORE) == 0.25
    assert (answer_coverage(one, CORE), answer_coverage(other, CORE)) == (1, 0)


def test_frequency_of_passages() -> None:
    """(2/4 + 4/4) / 2 for the covered ones, 1/4 for the other."""
    judged = [
        Judged(CORE, True, (True, True, False, False)),
        Judged(CORE, True, (True,) * 4),
        Judged(CORE, False, (False, False, True, False)),
        Judged(BACKGROUND, False, (True,) * 4),
        Judged(CORE, True, ()),
    ]
    assert coverage_measures(judged)["frequency_correlation"] == 0.5
    assert "frequency_correlation" not in coverage_measures(judged[:2])


def test_positions_of_three_types() -> None:
    judged = [
        Judged(CORE, True, position=0.1),
        Judged(CORE, True, position=0.3),
        Judged(CORE, True, position=None),
        Judged(CORE, False, position=0.9),
        Judged(BACKGROUND, True, position=0.4),
        Judged(FOLLOW_UP, True, position=1.0),
    ]
    assert coverage_measures(judged)["position_alignment"] == pytest.approx(1.0 - (0.2 + 0.4) / 2)
    assert "position_alignment" not in coverage_measures(judged[:-1])


def test_a_position_is_that_of_a_fragment_by_words() -> None:
    answer = " ".join(f"word{i}" for i in range(1, 101))
    found = locate_fragment(answer, "word20 word21")
    assert found is not None and found.position == 0.2


def test_what_retrieves_nothing_still_has_metrics() -> None:
    judged = [Judged(CORE, True), Judged(CORE, False)]
    assert coverage_measures(judged) == {"answered_core": 0.5, "retrieved_core": 0.0, "retrieval_potential": 1.0}


def test_nothing_judged_has_none() -> None:
    assert coverage_measures([]) == {}
    assert rating([]) is scaled_rating([]) is None


@given(judgments(), weights)
def test_the_scaled_rating_is_the_rating_between_worst_and_best(judged: list[Judged], weight: dict) -> None:
    value, scaled = rating(judged, weight), scaled_rating(judged, weight)
    if scaled is None:
        assert all(weight.get(j.type, 0.0) == 0 for j in judged)
        return
    assert value is not None and 0 <= scaled <= 1
    present = {j.type for j in judged} & set(weight)
    worst = sum(min(weight[t], 0) for t in present)
    best = sum(max(weight[t], 0) for t in present)
    assert worst + scaled * (best - worst) == pytest.approx(value, abs=1e-9)


def test_the_rating_prefers_core_and_shuns_follow_up() -> None:
    question = [CORE, CORE, BACKGROUND, FOLLOW_UP]
    good = [Judged(t, t is not FOLLOW_UP) for t in question]
    bad = [Judged(t, t is FOLLOW_UP) for t in question]
    assert (rating(good), rating(bad)) == (1.5, -1)
    assert (scaled_rating(good), scaled_rating(bad)) == (1, 0)
    assert dict(WEIGHTS) == {"core": 1, "background": 0.5, "follow-up": -1}
