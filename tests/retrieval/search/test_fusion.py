from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.core.records import Passage
from typedrag.retrieval import reciprocal_rank_fusion, round_robin, weighted_fusion

ranking = st.lists(st.sampled_from("abcdefghij"), unique=True).map(lambda ids: [Passage(i, f"text {i}") for i in ids])
rankings = st.lists(ranking, max_size=5)


def ids(passages: list[Passage]) -> list[str]:
    return [p.id for p in passages]


def test_the_scores_are_the_paper_s():
    a, b, c = (Passage(i, i) for i in "abc")
    fused = reciprocal_rank_fusion([[a, b], [b, c]])
    assert ids(fused) == ["b", "a", "c"]
    assert [p.score for p in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])
    assert [p.score for p in reciprocal_rank_fusion([[a, b]], constant=0)] == [1, 0.5]


@given(rankings)
def test_each_passage_is_there_once_by_falling_score(lists):
    fused = reciprocal_rank_fusion(lists)
    assert sorted(ids(fused)) == sorted({p.id for each in lists for p in each})
    scores = [p.score for p in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(p.text == f"text {p.id}" for p in fused)


@given(rankings)
def test_ties_keep_the_order_in_which_passages_were_first_seen(lists):
    first_seen = list(dict.fromkeys(p.id for each in lists for p in each))
    fused = reciprocal_rank_fusion(lists)
    for earlier, later in pairwise(fused):
        if earlier.score == later.score:
            assert first_seen.index(earlier.id) < first_seen.index(later.id)


@given(rankings)
def test_the_scores_of_the_retrievers_count_for_nothing(lists):
    scored = [[Passage(p.id, p.text, score=100.0 * n) for n, p in enumerate(each)] for each in lists]
    assert reciprocal_rank_fusion(scored) == reciprocal_rank_fusion(lists)


def scored(**scores: float) -> list[Passage]:
    return [Passage(i, f"text {i}", score=s) for i, s in scores.items()]


def test_negative_scores_single_ones_and_equal_ones_have_their_place():
    assert ids(weighted_fusion([scored(a=-0.1, b=-0.9)], [1])) == ["a", "b"]
    assert [p.score for p in weighted_fusion([scored(a=-3)], [0.5])] == [0.5]
    assert [p.score for p in weighted_fusion([scored(a=2, b=2)], [1])] == [1, 1]
    assert weighted_fusion([[], []], [0.5, 0.5]) == []
    with pytest.raises(ValueError, match="zip"):
        weighted_fusion([scored(a=1)], [0.5, 0.5])


@given(rankings, st.data())
def test_a_weighted_fusion_has_each_passage_once_by_falling_score(lists, data):
    weights = [data.draw(st.floats(0, 1)) for _ in lists]
    by_rank = [[Passage(p.id, p.text, score=-float(n)) for n, p in enumerate(each)] for each in lists]
    fused = weighted_fusion(by_rank, weights)
    assert sorted(ids(fused)) == sorted({p.id for each in lists for p in each})
    scores = [p.score for p in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(-1e-9 <= s <= sum(weights) + 1e-9 for s in scores)


@given(rankings)
def test_by_turns_each_passage_comes_once_and_none_before_one_that_a_list_has_further_up(lists):
    pooled = ids(round_robin(lists))
    best = {i: min(ids(ranking).index(i) for ranking in lists if i in ids(ranking)) for i in pooled}
    assert sorted(pooled) == sorted({i for ranking in lists for i in ids(ranking)})
    assert [best[i] for i in pooled] == sorted(best.values())


@given(rankings, st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_the_lists(lists, random):
    shuffled = random.sample(lists, len(lists))
    scores = {p.id: p.score for p in reciprocal_rank_fusion(lists)}
    assert {p.id: p.score for p in reciprocal_rank_fusion(shuffled)} == pytest.approx(scores)
