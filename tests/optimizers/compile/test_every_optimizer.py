"""What holds for each optimizer."""

import hashlib
import inspect
import time
from importlib import import_module
from operator import attrgetter

import pytest
from dspy.utils.exceptions import LMAuthError

from tests.optimizers.tiny import OPTIONS, AnswerTiny, Engine, Tiny, request_for, tiny_lm
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.lms.lm import use_lm
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer, optimizer_class, optimizer_names
from typedrag.optimizers.compile.prompt_optimizers.any_of_dspy import usable_names
from typedrag.optimizers.compile.prompt_optimizers.candidates import best_so_far, read_candidates
from typedrag.optimizers.compile.prompt_optimizers.dspy_internals import INTERNALS
from typedrag.programs.artifact import dump_state, fingerprint, load_state, signature_fields
from typedrag.runs import Limits

ALL = tuple(OPTIONS)
BASE_CALLS = 8 * 3
"""Of the base on eight validation examples."""


@pytest.mark.parametrize("name", ALL)
def test_it_makes_a_program_better_that_is_saved_whole(name, tmp_path):
    engine = Engine(random=name == "simba")  # which needs runs that vary
    request = request_for(tmp_path, engine)
    optimizer = build_optimizer(name, OPTIONS[name])
    planned = optimizer.planned_runs(*optimizer.sizes(request))
    told = []
    outcome = compile_module(request, optimizer, on_candidate=told.append)
    base, best = outcome.base_candidate, outcome.best_candidate
    assert outcome.stopped == ""
    assert (base.how, base.score, base.changed) == ("as it is", base.base, ())
    assert best.score > base.score or name in ("dspy:LabeledFewShot", "dspy:BootstrapFewShotWithOptuna")
    assert all(c.base == base.score for c in outcome.candidates if c.full_valset)
    assert list(outcome.candidates) == told == read_candidates(tmp_path)
    assert outcome.spent.usage.lm_calls == len(engine.requests)
    assert (planned is None) == name.startswith("dspy:")
    if planned:
        assert outcome.spent.usage.lm_calls / 3 <= planned <= len(engine.requests)  # each run takes three calls
    assert [c.lm_calls for c in told] == sorted(c.lm_calls for c in told)

    assert fingerprint(dump_state(outcome.best)) == best.state
    assert fingerprint(dump_state(request.student)) == base.state  # the student itself is not changed
    loaded = Tiny()
    load_state(loaded, dump_state(outcome.best), signature_fields(outcome.best))
    with use_lm(tiny_lm(engine)):
        said = [program(question="Why does cat 100 sleep?").toDict() for program in (loaded, outcome.best)]
    assert said[0] == said[1]
    assert all(predictor.lm is None for predictor in outcome.best.predictors())


@pytest.mark.parametrize("name", ["gepa", "simba"])
def test_it_stops_at_its_budget_with_the_best_so_far(name, tmp_path):
    engine = Engine(seconds=0.002, random=name == "simba")
    allowed = BASE_CALLS + 5
    optimizer = build_optimizer(name, OPTIONS[name])
    outcome = compile_module(request_for(tmp_path, engine), optimizer, Limits(lm_calls=allowed))
    assert "allowed" in outcome.stopped
    assert outcome.spent.usage.lm_calls == len(engine.requests) == allowed
    assert outcome.best_candidate == outcome.base_candidate
    assert fingerprint(dump_state(outcome.best)) == outcome.base_candidate.state
    time.sleep(0.1)
    assert len(engine.requests) == allowed  # of threads that DSPy has left behind, too


@pytest.mark.parametrize("name", ["mipro", "gepa"])
def test_an_lm_that_fails_ends_it(name, tmp_path):
    engine = Engine(limit=BASE_CALLS + 5, random=name == "simba")
    engine.error = lambda: LMAuthError("connection refused")
    request = request_for(tmp_path, engine)
    with pytest.raises(LMUnavailable, match="connection refused"):
        compile_module(request, build_optimizer(name, OPTIONS[name]))
    assert len(engine.requests) <= BASE_CALLS + 5 + 2 * request.threads  # each has two calls at once
    assert fingerprint(dump_state(best_so_far(tmp_path, request.student))) == read_candidates(tmp_path)[0].state


@pytest.mark.parametrize("name", optimizer_names())
def test_its_options_are_closed_and_documented(name):
    cls = optimizer_class(name)
    assert cls.about and cls.__doc__
    assert all(option.description for option in cls.model_fields.values())
    with pytest.raises(InputError, match=f"optimizer '{name}', option no_such_option"):
        build_optimizer(name, {"no_such_option": 1})
    sizes = [build_optimizer(name, {}, budget).validation_examples for budget in ("light", "medium", "heavy")]
    assert sizes == [50, 100, 300]
    assert build_optimizer(name, {"validation_examples": None}) == cls()


def test_all_names_are_known():
    assert set(optimizer_names()) == {name for name in OPTIONS if not name.startswith("dspy:")}
    assert {name for name in OPTIONS if name.startswith("dspy:")} == {f"dspy:{name}" for name in usable_names()}
    with pytest.raises(InputError, match="no optimizer is called 'magic'"):
        build_optimizer("magic")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("dspy:Magic", {}, "DSPy has no optimizer 'Magic'. It has: BootstrapFewShot"),
        ("dspy:MIPROv2", {}, "dspy:MIPROv2 is mipro here. Use it: --optimizer mipro"),
        ("dspy:BetterTogether", {}, "takes optimizers as objects. Compile again from what came out"),
        ("dspy:KNNFewShot", {}, "replaces the program's forward, which no file can hold"),
        ("dspy:BootstrapFinetune", {}, "dspy:BootstrapFinetune cannot be used in a compile: it trains an LM"),
        ("dspy:COPRO", {"width": 2}, "option width: it has no such option. Its options: breadth, depth"),
        ("dspy:BootstrapFewShotWithOptuna", {}, "needs option max_demos. Give it: max_demos=VALUE"),
    ],
)
def test_what_of_dspy_cannot_be_used_is_said_in_a_line(name, options, said):
    with pytest.raises(InputError) as refused:
        build_optimizer(name, options)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_an_error_of_an_optimizer_of_dspy_is_said_in_a_line(tmp_path):
    request = request_for(tmp_path, Engine())
    with pytest.raises(InputError, match=r"optimizer 'dspy:COPRO' failed: ValueError: Breadth must be greater than 1"):
        compile_module(request, build_optimizer("dspy:COPRO", {"breadth": 1}))


def test_dspy_leaves_the_signatures_of_the_program_alone(tmp_path):
    """Its InferRules writes into the signatures themselves, which all programs share."""
    before = AnswerTiny.instructions
    outcome = compile_module(request_for(tmp_path, Engine()), build_optimizer("dspy:InferRules", {"num_candidates": 2}))
    assert AnswerTiny.instructions == before
    told = outcome.best.answerers["cat"].signature.instructions
    assert told.startswith(before) and told.count("Please adhere to the following rules") == 1


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.part)
def test_internals_of_dspy_are_those_that_were_read(internal):
    module, _, name = internal.part.partition(":")
    source = inspect.getsource(attrgetter(name)(import_module(module)))
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == internal.digest, internal.why
