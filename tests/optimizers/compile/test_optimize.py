"""What becomes of scores, failures and the best so far."""

import itertools
import json

import dspy
import pytest
from dspy.utils.exceptions import LMAuthError

from tests.optimizers import tiny
from tests.optimizers.tiny import Engine, Goodness, Raising, examples, request_for, tiny_lm
from typedrag.core.errors import CallFailed, InputError, LMUnavailable, StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.optimizers.compile.optimize import compile_module, estimate_compile
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer
from typedrag.optimizers.compile.prompt_optimizers.candidates import BEST, CANDIDATES, best_so_far
from typedrag.programs.artifact import dump_state, fingerprint
from typedrag.runs import Limits

SEARCH = ("bootstrap-random-search", {"candidates": 4})


def test_a_judge_that_fails_costs_a_candidate_nothing(tmp_path):
    """It counts as what the base got for the same question, and is counted."""
    calls = itertools.count()

    def fail(*_):
        if (number := next(calls)) >= 8 and number % 3 == 0:  # not of the base, then every third time
            raise StepFailed("rank", "could not be read")

    def best(metric, folder):
        optimizer = build_optimizer("dspy:COPRO", {"breadth": 2, "depth": 1})
        return compile_module(request_for(folder, Engine(), metric=metric, threads=1), optimizer)

    disturbed, calm = best(Goodness(fail), tmp_path / "a"), best(Goodness(), tmp_path / "b")
    assert disturbed.base_candidate.unjudged == 0
    assert all(c.unjudged for c in disturbed.candidates[1:])
    same = [(d, c) for d, c in zip(disturbed.candidates, calm.candidates, strict=False) if d.state == c.state]
    assert len(same) > 1
    for d, c in same:
        assert min(d.base, c.score) <= d.score <= max(d.base, c.score)  # between no change and the true one
    assert all(d.score >= d.base - 1e-9 for d, c in same if c.score >= c.base)


def test_a_fault_of_the_metric_is_raised(tmp_path):
    calls = itertools.count()
    metric = Goodness(lambda *_: {}["references"] if next(calls) > 10 else None)
    request = request_for(tmp_path, Engine(), metric=metric)
    with pytest.raises(KeyError, match="references"):
        compile_module(request, build_optimizer(*SEARCH))
    assert fingerprint(dump_state(best_so_far(tmp_path, request.student)))


def test_a_question_that_the_lm_fails_at_fails_alone(tmp_path):
    slow = []

    def error(question):
        slow[:] = slow or [question]
        return CallFailed(f"too slow for {question}") if question == slow[0] else None

    request = request_for(tmp_path, Engine(), student=Raising(error))
    outcome = compile_module(request, build_optimizer("dspy:LabeledFewShot"))
    assert outcome.stopped == ""
    assert outcome.base_candidate.failed == 1


def test_an_lm_that_fails_at_one_question_after_the_other_ends_it(tmp_path):
    request = request_for(tmp_path, Engine(), student=Raising(lambda question: CallFailed(f"too slow for {question}")))
    with pytest.raises(CallFailed, match="too slow for"):
        compile_module(request, build_optimizer("dspy:LabeledFewShot"))


def test_a_judge_whose_lm_is_down_ends_it(tmp_path):
    judge_engine = Engine(limit=12)
    judge_engine.error = lambda: LMAuthError("the judge's server is gone")
    judge = tiny_lm(judge_engine, "tiny/judge")

    def ask_judge(gold, pred, trace):
        with dspy.context(trace=None), use_lm(judge):
            ask("judge", dspy.Predict("remark -> reply"), retries=1, remark=f"{gold.question} {pred.answer}")

    with pytest.raises(LMUnavailable, match="the judge's server is gone"):
        compile_module(request_for(tmp_path, Engine(), metric=Goodness(ask_judge)), build_optimizer(*SEARCH))
    assert len(judge_engine.requests) <= 12 + 2


def test_a_program_that_answers_nothing_ends_it(tmp_path):
    mute = Raising(lambda question: StepFailed("answer", "nothing came out"))
    with pytest.raises(StepFailed, match="answers none of the 8 validation examples"):
        compile_module(request_for(tmp_path, Engine(), student=mute), build_optimizer("bootstrap"))


@pytest.mark.parametrize("name", ["bootstrap-random-search", "mipro", "gepa", "simba", "dspy:COPRO"])
def test_a_budget_spent_on_the_way_gives_the_best_so_far(name, tmp_path):
    options, random = tiny.OPTIONS[name], name == "simba"
    finished = compile_module(request_for(tmp_path / "all", Engine(random=random)), build_optimizer(name, options))
    first = next(c for c in finished.candidates if c.score > c.base and c.full_valset)
    allowed = finished.spent.usage.lm_calls - 3 if random else first.lm_calls + 1
    engine = Engine(random=random)
    request = request_for(tmp_path / "some", engine)
    outcome = compile_module(request, build_optimizer(name, options), Limits(lm_calls=allowed))
    assert outcome.stopped or outcome.spent.usage.lm_calls < allowed
    assert outcome.best_candidate.score > outcome.base_candidate.score
    assert fingerprint(dump_state(outcome.best)) == outcome.best_candidate.state
    assert len(engine.requests) <= allowed


def test_trial_on_a_part_of_the_validation_set_is_never_the_best(tmp_path):
    """MIPRO's trials are, where there are many validation examples."""
    options = {**tiny.OPTIONS["mipro"], "minibatch_size": 5, "validation_examples": 55, "trials": 2}
    request = request_for(tmp_path, Engine(), valset=examples(60, start=100), threads=4)
    outcome = compile_module(request, build_optimizer("mipro", options))
    parts = [c for c in outcome.candidates if not c.full_valset]
    assert parts and all(c.n == 5 and not c.best for c in parts)
    assert outcome.best_candidate.full_valset and outcome.best_candidate.of == 55


def test_examples_are_drawn_in_turn_from_each_type(tmp_path):
    seen = []
    many = [e for e in examples(60, start=100) if e.kind == "cat"] + examples(2, start=200)
    metric = Goodness(lambda gold, pred, trace: seen.append(gold))
    request = request_for(tmp_path, Engine(), metric=metric, valset=many)
    compile_module(request, build_optimizer("bootstrap", {"validation_examples": 2, "train_examples": 1}))
    assert {e.kind for e in seen[:2]} == {"cat", "dog"}


def test_a_prompt_model_whose_replies_cannot_be_read_ends_it_with_the_best_so_far(tmp_path):
    class Babbling(Engine):
        def text(self, request, said):
            return "well, well"

    request = request_for(tmp_path, Engine(), prompt_lm=tiny_lm(Babbling(), "tiny/prompt"))
    outcome = compile_module(request, build_optimizer("dspy:COPRO", tiny.OPTIONS["dspy:COPRO"]))
    assert "gave the optimizer nothing it could use" in outcome.stopped
    assert outcome.best_candidate == outcome.base_candidate


def test_the_best_so_far_is_whole_at_any_time(tmp_path):
    request = request_for(tmp_path, Engine())
    assert best_so_far(tmp_path, request.student) is None
    seen = []

    def on_candidate(candidate):
        found = fingerprint(dump_state(best_so_far(tmp_path, request.student)))
        seen.append(found == candidate.state)
        assert candidate.best == seen[-1] or not candidate.best

    compile_module(request, build_optimizer(*SEARCH), on_candidate=on_candidate)
    assert seen[0] and len(seen) == 4
    (tmp_path / BEST).write_text("{}")
    with pytest.raises(InputError, match="holds no program"):
        best_so_far(tmp_path, request.student)


def test_no_key_is_written_down(tmp_path):
    problem = StepFailed("answer", "https://lm.example.org refuses the key sk-planted-12345")
    leaking = Raising(lambda question: problem if "dog" in question else None)

    def hide(text):
        return text.replace("sk-planted-12345", "[hidden]")

    request = request_for(tmp_path, Engine(), student=leaking, redact=hide)
    compile_module(request, build_optimizer("bootstrap"))
    assert "refuses the key [hidden]" in (tmp_path / "optimizer.log").read_text()
    assert not any(b"sk-planted" in file.read_bytes() for file in tmp_path.iterdir())


def test_an_estimate_asks_three_questions_once_and_the_compile_does_not_ask_them_again(tmp_path):
    engine = Engine()
    request = request_for(tmp_path, engine)
    optimizer = build_optimizer("bootstrap")
    estimate = estimate_compile(request, optimizer)
    assert (estimate.runs, estimate.total.usage.lm_calls, estimate.total.tokens) == (26, 78, 1170)
    assert estimate_compile(request, optimizer) == estimate
    assert len(engine.requests) == 9
    outcome = compile_module(request, optimizer)
    assert len(engine.requests) == len(set(engine.requests)) == outcome.spent.usage.lm_calls <= 78


def test_an_estimate_keeps_to_the_limits_and_can_be_interrupted(tmp_path):
    engine = Engine()
    optimizer = build_optimizer("bootstrap")
    estimate_compile(request_for(tmp_path / "a", engine), optimizer, Limits(lm_calls=4))
    assert len(engine.requests) == 4
    outcome = compile_module(request_for(tmp_path / "a", engine), optimizer, Limits(lm_calls=4))
    assert "4 LM calls are made" in outcome.stopped and len(engine.requests) == 4
    engine = Engine(limit=4)
    engine.error = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        estimate_compile(request_for(tmp_path / "b", engine, threads=1), optimizer)
    assert 0 < len(engine.requests) < 9
    again = Engine()
    estimate_compile(request_for(tmp_path / "b", again), optimizer)
    assert len(again.requests) < 9


def test_two_compiles_at_once_are_refused(tmp_path):
    engine = Engine()

    def on_candidate(candidate):
        with pytest.raises(InputError, match="another compile is under way"):
            compile_module(request_for(tmp_path / "b", engine), build_optimizer("bootstrap"))

    request = request_for(tmp_path / "a", engine)
    assert compile_module(request, build_optimizer("bootstrap"), on_candidate=on_candidate).stopped == ""
    compile_module(request_for(tmp_path / "b", engine), build_optimizer("bootstrap"))


def test_examples_that_fail_are_counted_and_score_nothing(tmp_path):
    picky = Raising(lambda question: StepFailed("answer", "no dogs") if "dog" in question else None)
    outcome = compile_module(request_for(tmp_path, Engine(), student=picky), build_optimizer("bootstrap"))
    assert [c.failed for c in outcome.candidates] == [4] * len(outcome.candidates)
    assert outcome.base_candidate.score <= 0.5


def test_a_trajectory_that_was_cut_off_goes_on(tmp_path):
    first = compile_module(request_for(tmp_path, Engine()), build_optimizer(*SEARCH))
    file = tmp_path / CANDIDATES
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:40])
    again = compile_module(request_for(tmp_path, Engine()), build_optimizer(*SEARCH))
    assert [c.state for c in again.candidates] == [c.state for c in first.candidates]
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == [0, 1, 2, 3]
