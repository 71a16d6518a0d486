"""Each knob turns what it says, and has its range beside the setting."""

from __future__ import annotations

import random

import pytest

from typedrag.errors import InputError
from typedrag.experiments.evaluate.config import LMConfig, MetricConfig, ProgramConfig
from typedrag.optimizers.sweep.config import KnobConfig
from typedrag.optimizers.sweep.space import (
    RATING,
    all_knobs,
    build_space,
    key_of,
    lm_at,
    metrics_at,
    program_at,
    rating_of,
    value_of,
)
from typedrag.programs import Options


def space_of(**knobs):
    return build_space({name.replace("__", "."): KnobConfig.model_validate(given) for name, given in knobs.items()})


def test_a_knob_has_its_declared_range_unless_the_file_gives_another():
    space = space_of(
        top_k=None, answer_passages=[1, 2], passage_words={"low": 10, "high": 30, "step": 10}, bm25__b=None
    )
    ends = {n: (d.low, d.high) for n, d in space.distributions.items() if hasattr(d, "low")}
    assert ends == {"top_k": (1, 20), "passage_words": (10, 30), "bm25.b": (0.0, 1.0)}
    assert space.distributions["answer_passages"].choices == (1, 2)
    assert space.size == float("inf")
    assert space_of(top_k=None, rerank_everywhere=None).size == 40


@pytest.mark.parametrize(
    "name", [n for n, knob in all_knobs().items() if n not in RATING and (knob.low is not None or knob.choices)]
)
def test_every_value_of_every_knob_is_one_that_the_setting_takes(name):
    space = build_space({name: KnobConfig()})
    base = ProgramConfig(program="typed_rag", retriever="bm25", reranker="none")
    before = value_of(name, Options(), base, LMConfig())
    luck, made = random.Random(0), set()
    while len(made) < min(space.size, 5):
        point = space.draw(luck, set(made))
        made.add(key_of(point))
        program, lm = program_at(base, point), lm_at(LMConfig(), point)
        options = Options().with_given(program.options)
        assert value_of(name, options, program, lm) == point[name]
    assert before is None or space.holds({name: before}) or name.startswith("lm.")


def test_weights_of_the_rating_are_turned_in_the_metrics_that_rate():
    metrics = [
        MetricConfig(name="coverage", options={"weights": [1, 0, 0], "passages": False}),
        MetricConfig(name="preference"),
        MetricConfig(name="truthfulness"),
    ]
    coverage, preference, truthfulness = metrics_at(metrics, {"rating.follow_up": -0.5, "top_k": 3})
    assert coverage.options == {"weights": [1, 0, -0.5], "passages": False}
    assert preference.options == {"weights": [1.0, 0.5, -0.5]}
    assert truthfulness is metrics[2]
    assert metrics_at(metrics, {"top_k": 3}) == tuple(metrics)
    assert rating_of(metrics) == {"rating.core": 1, "rating.background": 0, "rating.follow_up": 0}


def test_finite_spaces_are_gone_through_once_in_an_order_of_the_seed():
    space = space_of(top_k=[1, 2, 3], rerank_everywhere=None)
    first, again, other = space.shuffled(1), space.shuffled(1), space.shuffled(2)
    assert first == again != other
    assert sorted(map(key_of, first)) == sorted(map(key_of, other))
    assert len(first) == 6


def test_what_was_seen_is_not_drawn_again():
    space, luck, seen = space_of(top_k=[1, 2, 3]), random.Random(0), set()
    for _ in range(3):
        point = space.draw(luck, seen)
        assert key_of(point) not in seen
        seen.add(key_of(point))
    assert space.draw(luck, seen) is None
    wide = space_of(score_cutoff={"low": 0, "high": 1}, bm25__k1=None)
    assert wide.draw(luck, set()) != wide.draw(luck, set())


def test_a_step_is_the_same_point_however_its_number_was_added_up():
    space = space_of(score_cutoff={"low": 0.0, "high": 1.0, "step": 0.2})
    optuna = space.distributions["score_cutoff"].to_external_repr(3 * 0.2)
    assert optuna != 0.6
    assert space.holds({"score_cutoff": optuna})
    assert space.draw(random.Random(0), {key_of({"score_cutoff": v}) for v in (0.0, 0.2, 0.4, 0.8, 1.0)}) == {
        "score_cutoff": 0.6
    }
    every = {key_of({"score_cutoff": v}) for v in (0.0, 0.2, 0.4, optuna, 0.8, 1.0)}
    assert space.draw(random.Random(0), every) is None


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"retriever": ["bm25", "dense"], "hybrid__weight": None}, r"'retriever' and 'hybrid\.weight'.*hybrid:0\.3"),
        ({"program": ["rag", "typed_rag"], "teleprompter": ["none", "dspy:COPRO"]}, "'program' and 'teleprompter'"),
    ],
)
def test_knobs_of_which_one_overrules_the_other_are_refused(knobs, said):
    with pytest.raises(InputError, match=said):
        space_of(**knobs)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"top_k": {"low": 1, "high": 5, "step": 0.5}}, "knob 'top_k' has whole numbers alone"),
        ({"top_k": {"low": 1.5, "high": 5}}, "knob 'top_k' has whole numbers alone"),
        ({"score_cutoff": {"low": 0, "high": 8, "log": True}}, "'score_cutoff' is logarithmic and begins at 0"),
        ({"top_k": {"low": 0, "high": 8, "log": True}}, "'top_k' is logarithmic and begins at 0"),
        ({"bm25__k1": {"low": 1, "high": 2, "log": True, "step": 0.5}}, r"'bm25\.k1' has steps and is logarithmic"),
    ],
)
def test_ranges_that_cannot_be_are_refused(knobs, said):
    with pytest.raises(InputError, match=said):
        space_of(**knobs)


def test_ranges_and_names_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match=r"no knob is called 'by_type\.debate\.threads'"):
        space_of(by_type__debate__threads=None)
    with pytest.raises(InputError, match="too many values for a grid"):
        space_of(bm25__b=None).shuffled(0)
    for given in ({"low": 3, "high": 1}, {"low": 1}, {"values": [1], "low": 0, "high": 2}):
        with pytest.raises(ValueError, match="range"):
            KnobConfig.model_validate(given)


def test_the_weight_of_an_index_server_cannot_be_turned():
    base = ProgramConfig(program="rag", retriever="http://localhost:8010")
    assert program_at(base, {"bm25.k1": 1.2}).retriever == base.retriever
    with pytest.raises(InputError, match=r"hybrid\.weight cannot be turned"):
        program_at(base, {"hybrid.weight": 0.5})
