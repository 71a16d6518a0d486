import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Reference
from typedrag.datasets import SPLITS, Dataset, load_dataset
from typedrag.datasets.dataset import example, sample

IDS = st.text("abcdefghij", min_size=1, max_size=6)
KINDS = st.tuples(
    st.sampled_from(["nq", "squad", ""]), st.sampled_from([None, QuestionType.REASON, QuestionType.DEBATE])
)


def dataset_of(kinds: dict[str, tuple[str, QuestionType | None]]) -> Dataset:
    examples = (example(id=i, question=f"{i}?", subset=s, question_type=t) for i, (s, t) in kinds.items())
    return Dataset("some", tuple(examples))


def split_of(dataset: Dataset) -> dict[str, str]:
    return {e.id: name for name in SPLITS for e in dataset.split(name)}


@given(st.dictionaries(IDS, KINDS, max_size=40))
def test_splits_are_disjoint_complete_and_stratified(kinds):
    dataset = dataset_of(kinds)
    assert sorted(e.id for name in SPLITS for e in dataset.split(name)) == sorted(kinds)
    places = split_of(dataset)
    for stratum in dataset.strata().values():
        for name, share in zip(SPLITS, (0.5, 0.25, 0.25), strict=True):
            assert abs(sum(places[e.id] == name for e in stratum) - share * len(stratum)) < 1


@given(st.dictionaries(IDS, KINDS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_splits_depend_on_nothing_but_the_ids_of_a_stratum(kinds, rng):
    places = split_of(dataset_of(kinds))
    shuffled = list(kinds.items())
    rng.shuffle(shuffled)
    assert split_of(dataset_of(dict(shuffled))) == places
    kept = rng.choice(list(kinds.values()))
    alone = split_of(dataset_of({i: kind for i, kind in kinds.items() if kind == kept}))
    assert alone == {i: places[i] for i in alone}


@given(st.dictionaries(IDS, st.just(("nq", None)), max_size=40), IDS)
def test_one_more_question_moves_at_most_two_others(kinds, new):
    before = split_of(dataset_of({i: kind for i, kind in kinds.items() if i != new}))
    after = split_of(dataset_of({**kinds, new: ("nq", None)}))
    assert sum(after[i] != split for i, split in before.items()) <= 2


def test_all_is_every_example_and_other_splits_are_unknown():
    dataset = dataset_of({"a": ("", None), "b": ("", None)})
    assert dataset.split("all") == dataset.examples
    with pytest.raises(InputError, match=r"no split is called 'dev'. Splits: all, train, validation, test"):
        dataset.split("dev")


@settings(max_examples=50)
@given(st.dictionaries(IDS, KINDS, min_size=1, max_size=30), st.integers(0, 3))
def test_a_larger_sample_extends_a_smaller_one(kinds, seed):
    examples = dataset_of(kinds).examples
    samples = [[e.id for e in sample(examples, limit, seed)] for limit in range(1, len(kinds) + 3)]
    assert all(larger[: len(smaller)] == smaller for smaller, larger in pairwise(samples))
    assert [len(found) for found in samples] == [min(limit, len(kinds)) for limit in range(1, len(kinds) + 3)]
    assert sorted(samples[-1]) == sorted(kinds)
    backwards = [e.id for e in sample(examples[::-1], 5, seed)]
    assert backwards == samples[min(5, len(samples)) - 1][:5]


@given(st.dictionaries(IDS, KINDS, min_size=1, max_size=40))
def test_a_sample_takes_from_each_stratum_in_turn(kinds):
    strata = dataset_of(kinds).strata()
    drawn = sample(dataset_of(kinds).examples, len(strata))
    assert len({(e.subset, e.question_type) for e in drawn}) == len(strata)


def test_a_sample_of_fewer_than_all_strata_still_takes_from_each_subset():
    kinds = {f"{subset}-{kind}": (subset, kind) for subset in "abcd" for kind in QuestionType}
    drawn = sample(dataset_of(kinds).examples, 4)
    assert [e.subset for e in drawn] == list("abcd")
    assert len({e.question_type for e in drawn}) == 4


def test_the_fingerprint_is_of_the_content_whatever_its_order():
    def dataset(label: int, order: int, type_: QuestionType = QuestionType.REASON) -> Dataset:
        examples = [
            example(id=str(n), question="é?", question_type=type_, references=(Reference("a", label),))
            for n in range(20)
        ]
        random.Random(order).shuffle(examples)
        return Dataset("some", tuple(examples))

    assert dataset(1, 0).fingerprint == dataset(1, 1).fingerprint
    assert dataset(1, 0).fingerprint != dataset(2, 0).fingerprint
    assert dataset(1, 0).fingerprint != dataset(1, 0, QuestionType.DEBATE).fingerprint


def test_repeated_ids_are_refused():
    twice = (example(id="a", question="x?"), example(id="a", question="y?"))
    with pytest.raises(InputError, match=r"dataset 'some' has 1 repeated ids, such as 'a'"):
        Dataset("some", twice)


def test_unknown_names_and_options_are_refused():
    with pytest.raises(
        InputError, match=r"no dataset is called 'nfqa'. Did you mean 'wiki-nfqa'[?] Datasets: .*wiki-nfqa"
    ):
        load_dataset("nfqa")
    with pytest.raises(InputError, match=r"dataset 'nf-cats' has no option 'fields'. Its options: subset"):
        load_dataset("nf-cats", fields={})
    with pytest.raises(InputError, match=r"dataset 'sample' has no option 'subset'. Its options: none"):
        load_dataset("sample", subset="nq")


def test_small_strata_get_into_every_split():
    dataset = dataset_of({f"q{n}": (f"subset {n}", None) for n in range(400)})
    sizes = [len(dataset.split(name)) for name in SPLITS]
    assert sizes == [pytest.approx(200, abs=40), pytest.approx(100, abs=35), pytest.approx(100, abs=35)]
