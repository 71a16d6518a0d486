from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from typedrag.metrics.estimate import (
    binary_agreement,
    kendall,
    label_agreement,
    pairwise_order_accuracy,
    spearman,
)

numbers = np.random.default_rng(0)
SCORES = list(numbers.random(80))
LABELS = [round(4 * s + n) for s, n in zip(SCORES, numbers.normal(size=80), strict=True)]
QUESTIONS = [i // 8 for i in range(80)]

few = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("pq")), min_size=2, max_size=8)
quick = settings(max_examples=12)


@quick
@given(few)
def test_order_of_pairs_is_what_its_definition_says(seen: list[tuple[int, int, str]]) -> None:
    points = [
        0.5 if a == b else float((a > b) == (x > y))
        for (a, x, p), (b, y, q) in combinations(seen, 2)
        if p == q and x != y
    ]
    scores, labels, groups = zip(*seen, strict=True)
    found = pairwise_order_accuracy(scores, labels, groups=groups)
    if not points:
        assert found is None
        return
    assert found is not None and found.n == len(points)
    assert found.value == pytest.approx(sum(points) / len(points))
    assert found.interval is None and found.units == len(set(groups))


def test_order_of_pairs_is_that_of_somers() -> None:
    """With one group, 2 x accuracy - 1 is Somers' D of the scores, given the labels."""
    from scipy.stats import somersd

    found = pairwise_order_accuracy(SCORES, LABELS, groups=["q"] * 80)
    assert found is not None and found.value == pytest.approx((1 + somersd(LABELS, SCORES).statistic) / 2)


@pytest.mark.parametrize(("measure", "name"), [(spearman, "spearmanr"), (kendall, "kendalltau")])
def test_correlations(measure, name: str) -> None:
    import scipy.stats

    found = measure(SCORES, LABELS)
    assert found.value == pytest.approx(getattr(scipy.stats, name)(SCORES, LABELS).statistic)
    assert -1 <= found.low < found.value < found.high <= 1 and found.n == 80
    turned = measure([-s for s in SCORES], LABELS, seed=1)
    assert (turned.value, turned.low) == pytest.approx((-found.value, -found.high), abs=0.02)
    grouped = measure(SCORES, LABELS, groups=QUESTIONS)
    assert grouped.value == found.value and (grouped.low, grouped.high) != (found.low, found.high)


def test_what_is_undefined_is_none() -> None:
    for measure in (spearman, kendall):
        assert measure([1, 1, 1], [1, 2, 3]) is measure([1, 2, 3], [1, 1, 1]) is measure([], []) is None
    assert pairwise_order_accuracy([1, 2], [1, 1], groups="qq") is None
    assert pairwise_order_accuracy([1, 2], [1, 2], groups="pq") is None


def test_a_judge_that_cannot_tell_does_as_well_as_lots() -> None:
    found = pairwise_order_accuracy([1.0] * 80, LABELS, groups=QUESTIONS)
    assert found is not None and found.value == found.low == found.high == 0.5


@quick
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_yes_or_no_is_that_of_scikit_learn(seen: list[tuple[bool, bool]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    actual, given_ = zip(*seen, strict=True)
    found = binary_agreement(actual, given_)
    assert found["accuracy"].value == pytest.approx(accuracy_score(actual, given_))
    assert ("precision" in found) == any(given_) and ("recall" in found) == any(actual)
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        if name in found:
            assert found[name].value == pytest.approx(score(actual, given_))
            ends = found[name].interval
            assert ends is None or 0 <= ends[0] <= ends[1] <= 1


@quick
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abcd")), min_size=1, max_size=12))
def test_labels_are_those_of_scikit_learn(seen: list[tuple[str, str]]) -> None:
    from typedrag.metrics.labels import accuracy, macro_f1

    actual, given_ = zip(*seen, strict=True)
    found = label_agreement(actual, given_)
    assert found["accuracy"].value == pytest.approx(accuracy(actual, given_))
    assert found["macro_f1"].value == pytest.approx(macro_f1(actual, given_))


def test_what_does_not_pair() -> None:
    with pytest.raises(ValueError, match="not paired"):
        spearman([1, 2], [1])
    with pytest.raises(ValueError, match="not paired"):
        binary_agreement([True], [])
    with pytest.raises(ValueError, match="argument 2"):
        pairwise_order_accuracy([1, 2], [1, 2], groups="q")
    assert binary_agreement([], []) == label_agreement([], []) == {}
