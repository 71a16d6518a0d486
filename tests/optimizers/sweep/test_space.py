"""Each knob turns what it says, and has its range beside the setting."""

import optuna
import pytest

from typedrag.core.errors import InputError
from typedrag.experiments.config import LMConfig, MetricConfig, ProgramConfig
from typedrag.optimizers.sweep.config import KnobConfig, SamplerConfig
from typedrag.optimizers.sweep.space import (
    RATING,
    all_knobs,
    apply_lm_params,
    apply_params,
    apply_rating,
    build_space,
    current_value,
    params_key,
)
from typedrag.optimizers.sweep.study import build_sampler
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
    before = current_value(name, Options(), base, LMConfig())
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(5):
        point = space.suggest(study.ask())
        program, lm = apply_params(base, point), apply_lm_params(LMConfig(), point)
        options = Options().with_given(program.options)
        assert current_value(name, options, program, lm) == pytest.approx(point[name])
    assert before is None or space.holds({name: before}) or name.startswith("lm.")


def test_weights_of_the_rating_are_turned_in_the_metrics_that_rate():
    metrics = [
        MetricConfig(name="coverage", options={"weights": [1, 0, 0], "passages": False}),
        MetricConfig(name="preference"),
        MetricConfig(name="truthfulness"),
    ]
    coverage, preference, truthfulness = apply_rating(metrics, {"rating.follow_up": -0.5, "top_k": 3})
    assert coverage.options == {"weights": [1, 0, -0.5], "passages": False}
    assert preference.options == {"weights": [1.0, 0.5, -0.5]}
    assert truthfulness is metrics[2]
    assert apply_rating(metrics, {"top_k": 3}) == tuple(metrics)
    own = [current_value(name, Options(), ProgramConfig(program="rag"), LMConfig(), metrics) for name in RATING]
    assert own == [1, 0, 0]


def test_a_step_is_held_however_its_number_was_added_up():
    space = space_of(score_cutoff={"low": 0.0, "high": 1.0, "step": 0.2})
    assert space.holds({"score_cutoff": 0.2 + 0.2 + 0.2})
    assert params_key({"score_cutoff": 0.2 + 0.2 + 0.2}) == params_key({"score_cutoff": 0.6})
    for outside in (0.5, 1.2, None, "a"):
        assert not space.holds({"score_cutoff": outside})


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"retriever": ["bm25", "dense"], "hybrid__weight": None}, r"'retriever' and 'hybrid\.weight'.*hybrid:0\.3"),
        ({"program": ["rag", "typed_rag"], "optimizer": ["none", "dspy:COPRO"]}, "'program' and 'optimizer'"),
        ({"top_k": {"low": 1, "high": 5, "step": 0.5}}, "knob 'top_k' has whole numbers alone"),
        ({"top_k": {"low": 1.5, "high": 5}}, "knob 'top_k' has whole numbers alone"),
        ({"score_cutoff": {"low": 0, "high": 8, "log": True}}, "'score_cutoff' is logarithmic and begins at 0"),
        ({"top_k": {"low": 0, "high": 8, "log": True}}, "'top_k' is logarithmic and begins at 0"),
        ({"bm25__k1": {"low": 1, "high": 2, "log": True, "step": 0.5}}, r"'bm25\.k1' has steps and is logarithmic"),
    ],
)
def test_knobs_that_overrule_one_another_and_ranges_that_cannot_be_are_refused(knobs, said):
    with pytest.raises(InputError, match=said):
        space_of(**knobs)


def test_the_weight_of_an_index_server_cannot_be_turned():
    base = ProgramConfig(program="rag", retriever="http://localhost:8010")
    assert apply_params(base, {"bm25.k1": 1.2}).retriever == base.retriever
    with pytest.raises(InputError, match=r"hybrid\.weight cannot be turned"):
        apply_params(base, {"hybrid.weight": 0.5})


def test_a_grid_survives_a_worker_that_is_killed_between_the_parameters_of_a_trial():
    space = space_of(top_k=[1, 2], answer_passages=[3, 4])
    study = optuna.create_study()
    study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.FAIL))  # killed before the first parameter
    first = {"top_k": space.distributions["top_k"]}
    study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.FAIL, params={"top_k": 1}, distributions=first))
    points = set()
    for _ in range(int(space.size)):
        study.sampler = build_sampler(SamplerConfig(name="grid"), space, study.trials)
        study.optimize(lambda trial: points.add(params_key(space.suggest(trial))) or 0.0, n_trials=1)
    assert len(points) == space.size
