import warnings
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from typedrag.metrics.estimate import (
    binary_agreement,
    bootstrap_estimate,
    kendall,
    label_agreement,
    mean_estimate,
    pairwise_order_accuracy,
    prediction_powered_mean,
    spearman,
)
from typedrag.metrics.labels import macro_f1


@settings(max_examples=30)
@given(st.lists(st.floats(-1, 1), min_size=10, max_size=30))
def test_the_mean_lies_within_its_interval_and_that_within_the_values(numbers: list[float]) -> None:
    estimate = mean_estimate(numbers, resamples=200)
    assert estimate.n == len(numbers)
    assert min(numbers) - 1e-9 <= estimate.low <= estimate.high <= max(numbers) + 1e-9
    assert estimate.value == pytest.approx(np.mean(numbers))


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    numbers = list(np.random.default_rng(0).normal(size=400))
    estimate = mean_estimate(numbers)
    error = np.std(numbers, ddof=1) / np.sqrt(400)
    assert estimate.low == pytest.approx(estimate.value - 1.96 * error, abs=0.2 * error)
    assert estimate.high == pytest.approx(estimate.value + 1.96 * error, abs=0.2 * error)


def test_what_belongs_together_is_resampled_together() -> None:
    """Copies of an observation add nothing to what is known."""
    numbers = np.random.default_rng(0).random(30)
    copied, groups = np.repeat(numbers, 20), np.repeat(np.arange(30), 20)
    alone, naive = mean_estimate(list(numbers)), mean_estimate(list(copied))
    grouped = bootstrap_estimate(np.mean, copied, groups=list(groups))
    assert grouped.high - grouped.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert naive.high - naive.low < 0.5 * (grouped.high - grouped.low)


def test_one_observation() -> None:
    estimate = bootstrap_estimate(np.mean, [0.2, 0.4], groups=["q", "q"])
    assert (estimate.interval, str(estimate)) == (None, "0.300 (n = 1 question)")


@pytest.mark.parametrize("estimate_of", [mean_estimate, partial(bootstrap_estimate, np.mean)])
def test_one_question_with_forty_observations_has_no_interval_and_ten_questions_have_one(estimate_of) -> None:
    luck = np.random.default_rng(0)
    one, nine, ten = (estimate_of(list(luck.random(40)), groups=[n % of for n in range(40)]) for of in (1, 9, 10))
    assert (one.interval, one.n, one.units, nine.interval) == (None, 40, 1, None)
    assert ten.low < ten.value < ten.high


def test_the_interval_of_few_differences_is_as_wide_as_that_of_the_t_distribution() -> None:
    """Plain percentiles are a fifth narrower: they hold the truth in 90 of 100 samples of ten."""
    ratios = []
    for seed in range(50):
        numbers = np.random.default_rng(seed).normal(size=10)
        estimate, by_t = mean_estimate(list(numbers)), ttest_1samp(numbers, 0).confidence_interval()
        ratios.append((estimate.high - estimate.low) / (by_t.high - by_t.low))
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)


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
    assert found.n == len(points)
    assert found.value == pytest.approx(sum(points) / len(points))
    assert found.interval is None and found.units == len(set(groups))


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


def test_paired_samples_stay_paired() -> None:
    numbers = list(np.random.default_rng(0).random(30))
    estimate = bootstrap_estimate(lambda x, y: float(np.mean(x - y)), numbers, numbers)
    assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0)
    with pytest.raises(ValueError, match="30, 29"):
        bootstrap_estimate(lambda x, y: 0.0, numbers, numbers[1:])


def test_both_ways_to_a_mean_agree() -> None:
    numbers = list(np.random.default_rng(0).random(60))
    one, other = mean_estimate(numbers), bootstrap_estimate(np.mean, numbers)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.01)


def test_undefined_resamples_are_left_out_without_a_warning() -> None:
    def share_of_ones(x: np.ndarray) -> float:
        return float((x == 1).sum() / x.sum()) if x.sum() else float("nan")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = bootstrap_estimate(share_of_ones, [0] * 9 + [1])
        assert bootstrap_estimate(share_of_ones, [0, 0]) is None
    assert (estimate.low, estimate.high) == (1, 1)


def test_what_is_undefined_is_none() -> None:
    assert mean_estimate([]) is bootstrap_estimate(np.mean, []) is None
    for measure in (spearman, kendall):
        assert measure([1, 1, 1], [1, 2, 3]) is measure([1, 2, 3], [1, 1, 1]) is measure([], []) is None
    assert pairwise_order_accuracy([1, 2], [1, 1], groups="qq") is None
    assert pairwise_order_accuracy([1, 2], [1, 2], groups="pq") is None


@quick
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abcd")), min_size=1, max_size=12))
def test_labels_are_those_of_scikit_learn(seen: list[tuple[str, str]]) -> None:
    from sklearn.metrics import accuracy_score

    actual, given_ = zip(*seen, strict=True)
    found = label_agreement(actual, given_)
    assert found["accuracy"].value == pytest.approx(accuracy_score(actual, given_))
    assert found["macro_f1"].value == pytest.approx(macro_f1(actual, given_))


def powered(judge_of, *, labelled: int, units: int = 300, draws: int = 1500) -> tuple[float, float]:
    """How often the interval holds the true mean of grades 1 to 4, and its width as a share of that by labels alone."""
    luck, held, widths = np.random.default_rng(0), 0, []
    for _ in range(draws):
        quality = luck.normal(size=units)
        grades = np.digitize(quality, [-1, 0, 1]) + 1.0  # their mean is 2.5
        labels = dict(enumerate(grades[:labelled]))
        by_both = prediction_powered_mean(labels, dict(enumerate(judge_of(quality, luck.normal(size=units)))))
        by_labels = prediction_powered_mean(labels)
        held += by_both.low <= 2.5 <= by_both.high
        widths.append((by_both.high - by_both.low) / (by_labels.high - by_labels.low))
    return held / draws, float(np.mean(widths))


@pytest.mark.parametrize("labelled", [50, 100])
@pytest.mark.parametrize(
    "judge_of",
    [
        lambda quality, noise: 0.2 + 0.05 * (quality + 1.2 * noise),  # biased, and on another scale
        lambda quality, noise: -(quality + 1.2 * noise),
        lambda quality, noise: (quality + noise > 0.5).astype(float),
    ],
    ids=["biased", "upside down", "yes or no"],
)
def test_a_judge_of_moderate_correlation_makes_an_interval_narrower_that_still_holds_the_truth(judge_of, labelled):
    held, width = powered(judge_of, labelled=labelled)
    assert 0.93 <= held <= 0.97
    assert width < 0.94


@pytest.mark.parametrize(
    "judge_of", [lambda quality, noise: noise, lambda quality, noise: noise * 0 + 0.3], ids=["noise", "constant"]
)
def test_a_useless_judge_costs_next_to_nothing(judge_of):
    held, width = powered(judge_of, labelled=50)
    assert 0.93 <= held <= 0.97
    assert width < 1.01


def test_labels_alone_have_a_t_interval_and_few_labels_have_none():
    numbers = dict(enumerate([1.0, 2, 4, 3, 2, 1, 4, 4, 2, 3, 3, 1]))
    alone, interval = prediction_powered_mean(numbers), ttest_1samp(list(numbers.values()), 0).confidence_interval()
    assert (alone.low, alone.high) == pytest.approx((interval.low, interval.high))
    # all that the judge has scored are labelled: it can tell nothing more
    assert prediction_powered_mean(numbers, {i: i * 0.1 for i in numbers}) == alone
    assert prediction_powered_mean({0: 1.0, 1: 2.0}, {i: 0.1 * i for i in range(9)}).interval is None
    assert prediction_powered_mean({}) is prediction_powered_mean({"a": 1.0}, {"b": 1.0}) is None


def test_labels_that_the_judge_has_no_score_beside_are_left_out():
    labels = {i: float(i % 4) for i in range(40)}
    judged = {i: i % 4 / 3 for i in range(10, 200)}
    assert prediction_powered_mean(labels, judged).n == 30
