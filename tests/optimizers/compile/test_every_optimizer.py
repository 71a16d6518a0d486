"""What holds for each optimizer."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from dspy.utils.exceptions import LMAuthError

from tests.optimizers.tiny import OPTIONS, Engine, Tiny, request_for, tiny_lm
from typedrag.errors import InputError, LMUnavailable
from typedrag.lms.lm import use_lm
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.teleprompters import (
    Budget,
    RunCost,
    best_so_far,
    build_optimizer,
    optimizer_class,
    optimizer_names,
)
from typedrag.optimizers.compile.teleprompters.candidates import TRAJECTORY, Candidate
from typedrag.programs.artifact.state import fields_of, fingerprint, restore, state_of

ALL = tuple(OPTIONS)
BASE_CALLS = 8 * 3
"""Of the base on eight validation examples."""


@pytest.mark.parametrize("name", ALL)
def test_it_makes_a_program_better_that_is_saved_whole(name, tmp_path):
    engine = Engine(random=name == "simba")  # which needs runs that vary
    request = request_for(tmp_path, engine)
    optimizer = build_optimizer(name, OPTIONS[name])
    estimate = optimizer.estimate(replace(request, run_cost=RunCost(lm_calls=3, tokens=45)))
    told = []
    outcome = compile_module(request, optimizer, on_candidate=told.append)
    base, best = outcome.base_candidate, outcome.best_candidate
    assert outcome.stopped == ""
    assert (base.how, base.score, base.changed) == ("as it is", base.base, ())
    assert best.score > base.score or name == "labeled-few-shot"
    assert all(c.base == base.score for c in outcome.candidates if c.whole)
    assert list(outcome.candidates) == told == _written(tmp_path)
    assert outcome.spent.usage.lm_calls == len(engine.requests)
    # what is asked twice is paid once: COPRO evaluates all its instructions anew at each depth
    assert outcome.spent.usage.lm_calls <= estimate.lm_calls <= (6 if name == "copro" else 3) * len(engine.requests)
    assert [c.lm_calls for c in told] == sorted(c.lm_calls for c in told)

    assert fingerprint(state_of(outcome.best)) == best.state
    assert fingerprint(state_of(request.student)) == base.state  # the student itself is not changed
    loaded = Tiny()
    restore(loaded, state_of(outcome.best), fields_of(outcome.best))
    with use_lm(tiny_lm(engine)):
        assert (
            loaded(question="Why does cat 100 sleep?").toDict()
            == outcome.best(question="Why does cat 100 sleep?").toDict()
        )
    assert all(predictor.lm is None for predictor in outcome.best.predictors())


@pytest.mark.parametrize("name", ALL)
def test_it_stops_at_its_budget_with_the_best_so_far(name, tmp_path):
    engine = Engine(seconds=0.002, random=name == "simba")
    allowed = BASE_CALLS + 5
    optimizer = build_optimizer(name, OPTIONS[name])
    outcome = compile_module(request_for(tmp_path, engine), optimizer, Budget(lm_calls=allowed))
    assert "allowed" in outcome.stopped
    assert outcome.spent.usage.lm_calls == len(engine.requests) == allowed
    assert outcome.best_candidate == outcome.base_candidate
    assert fingerprint(state_of(outcome.best)) == outcome.base_candidate.state
    time.sleep(0.1)
    assert len(engine.requests) == allowed  # of threads that DSPy has left behind, too


@pytest.mark.parametrize("name", ALL)
def test_an_lm_that_fails_ends_it(name, tmp_path):
    engine = Engine(limit=BASE_CALLS + 5, random=name == "simba")
    engine.error = lambda: LMAuthError("connection refused")
    request = request_for(tmp_path, engine)
    with pytest.raises(LMUnavailable, match="connection refused"):
        compile_module(request, build_optimizer(name, OPTIONS[name]))
    assert len(engine.requests) <= BASE_CALLS + 5 + 2 * request.threads  # each has two calls at once
    assert fingerprint(state_of(best_so_far(tmp_path, request.student))) == _written(tmp_path)[0].state


@pytest.mark.parametrize("name", ALL)
def test_its_estimate_asks_nothing(name, tmp_path):
    engine = Engine(random=name == "simba")
    request = request_for(tmp_path, engine)
    optimizer = build_optimizer(name, OPTIONS[name])
    estimate = optimizer.estimate(request)
    assert engine.requests == []
    assert estimate.lm_calls > BASE_CALLS and estimate.tokens > estimate.lm_calls


@pytest.mark.parametrize("name", optimizer_names())
def test_its_options_are_closed_and_documented(name):
    cls = optimizer_class(name)
    assert cls.about and cls.__doc__
    assert all(option.description for option in cls.Settings.model_fields.values())
    with pytest.raises(InputError, match=f"optimizer '{name}', option no_such_option"):
        build_optimizer(name, {"no_such_option": 1})
    sizes = [build_optimizer(name, {}, budget).settings.validation_examples for budget in ("light", "medium", "heavy")]
    assert sizes == [50, 100, 300]
    assert build_optimizer(name, {"validation_examples": None}).settings == cls.Settings()


def test_all_names_are_known():
    assert set(optimizer_names()) == {*OPTIONS, "bootstrap-finetune"}
    with pytest.raises(InputError, match="no optimizer is called 'magic'"):
        build_optimizer("magic")
    with pytest.raises(InputError, match=r"'ensemble' is no more\. Use 'bootstrap-random-search'"):
        build_optimizer("ensemble")


def _written(folder):
    return [Candidate.from_dict(json.loads(line)) for line in (folder / TRAJECTORY).read_text().splitlines()]
