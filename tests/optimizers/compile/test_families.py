"""What is particular to some optimizers."""

from __future__ import annotations

import threading

import dspy
import pytest
from dspy.clients.provider import Provider, TrainingJob
from dspy.teleprompt.bootstrap_trace import FailedPrediction

from tests.optimizers.tiny import OPTIONS, AnswerTiny, Engine, Goodness, Tiny, examples, request_for, tiny_lm
from typedrag.errors import InputError, LMUnavailable, StepFailed
from typedrag.lms.lm import open_lm
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.teleprompters import build_optimizer
from typedrag.optimizers.compile.teleprompters.gepa_parts import OfOneType, told_apart
from typedrag.programs.artifact.state import fields_of, restore, state_of


def test_gepa_reflects_on_the_calls_of_the_predictor_at_hand(tmp_path):
    """The two answerers have the same signature, by which GEPA tells predictors apart."""
    cat, dog = told_apart(Tiny()).predictors()[1:]
    assert not cat.signature.equals(dog.signature)
    assert cat.signature.instructions == dog.signature.instructions == AnswerTiny.instructions
    engine = Engine()
    compile_module(
        request_for(tmp_path, engine, trainset=examples(20)),
        build_optimizer("gepa", {"evaluations": 8, "minibatch_size": 4}),
    )
    reflections = [r for r in engine.requests if "new_instruction" in r]
    on_answers = [r for r in reflections if "Part 1" in r or "Part 2" in r]
    assert on_answers
    assert all(("cat" in r.split("sleep")[0]) != ("dog" in r.split("sleep")[0]) for r in on_answers)
    assert all(not ("Why does cat" in r and "Why does dog" in r) for r in on_answers)


def test_minibatches_are_of_one_type_in_turn():
    sampler = OfOneType(["reason", "debate", "reason", "reason", "debate"], size=2, seed=0)
    drawn = [sampler.next_minibatch_ids(None, None) for _ in range(4)]
    assert [set(d) <= {1, 4} for d in drawn] == [True, False, True, False]
    assert all(len(set(d)) == 2 for d in drawn)
    assert {*drawn[1], *drawn[3]} == {0, 2, 3}


def test_gepa_wastes_no_reflection_on_predictors_that_were_not_reached(tmp_path):
    class Tall(Tiny):
        """With predictors that nothing reaches."""

        def __init__(self):
            super().__init__()
            self.idle = [dspy.Predict("question -> nothing") for _ in range(6)]

    engine = Engine()
    outcome = compile_module(request_for(tmp_path, engine, student=Tall()), build_optimizer("gepa", {"evaluations": 5}))
    assert outcome.best_candidate.score > outcome.base_candidate.score
    assert "No valid" not in (tmp_path / "optimizer.log").read_text()


def test_gepa_hears_of_replies_that_could_not_be_parsed(tmp_path):
    class Mumbling(Engine):
        """Never answers about cats in a form that can be read."""

        def complete(self, request):
            said = super().complete(request)
            if "cat" in request.messages[-1].text and "Answer the question in a word." in str(request.system):
                said = dspy.lm15.Response(
                    id=None,
                    model=said.model,
                    message=dspy.lm15.Message.assistant("Meow, said the answer"),
                    finish_reason="stop",
                    usage=said.usage,
                )
            return said

    class Falling(Tiny):
        def answer_part(self, kind, question):
            try:
                return super().answer_part(kind, question)
            except StepFailed:  # as strategies do
                return "poor"

    traces, lock = [], threading.Lock()

    class Watching(Goodness):
        def __call__(self, gold, pred, trace=None, pred_name=None, pred_trace=None):
            with lock:
                traces.append(trace)
            return super().__call__(gold, pred, trace, pred_name, pred_trace)

    engine = Mumbling()
    compile_module(
        request_for(tmp_path, engine, student=Falling(), metric=Watching()),
        build_optimizer("gepa", {"evaluations": 6, "minibatch_size": 4}),
    )
    reflections = [r for r in engine.requests if "new_instruction" in r]
    assert any("Meow, said the answer" in r for r in reflections)
    assert not any(isinstance(call[2], FailedPrediction) for trace in traces for call in trace or ())


def test_rules_stay_with_their_candidate_and_off_the_signatures(tmp_path):
    """DSPy's InferRules writes into the signatures themselves, which all candidates and programs share."""
    before = AnswerTiny.instructions
    outcome = compile_module(request_for(tmp_path, Engine()), build_optimizer("infer-rules", {"candidates": 2}))
    assert AnswerTiny.instructions == before
    first, second = (c for c in outcome.candidates if c.how == "rules")
    assert first.state != second.state or first.score == second.score
    told = outcome.best.answerers["cat"].signature.instructions
    assert told.startswith(before) and told.count("Please adhere to the following rules") == 1


def test_only_rules_that_help_are_kept(tmp_path):
    rules = ["Be kind.", "Be BETTER.", "Be brief."]
    outcome = compile_module(request_for(tmp_path, Engine()), build_optimizer("rule-search", {"rules": rules}))
    assert [c.how for c in outcome.candidates[1:]] == [f"rule: {rule}" for rule in rules]
    for answerer in outcome.best.answerers.values():
        assert answerer.signature.instructions == f"{AnswerTiny.instructions}\nBe BETTER."
    assert outcome.best.classify.signature.equals(Tiny().classify.signature)  # it writes no answer
    assert "BETTER" not in AnswerTiny.instructions


def test_rules_for_nothing_that_is_compiled_are_refused(tmp_path):
    engine = Engine()
    for options, said in ({"outputs": ["rating"]}, "writes rating"), ({"rules": []}, "no rule"):
        with pytest.raises(InputError, match=said):
            compile_module(request_for(tmp_path, engine), build_optimizer("rule-search", options))
    assert engine.requests == []


def test_instructions_that_help_take_the_place_of_the_programs_own(tmp_path):
    tried = {
        "kind": {"AnswerTiny": "Answer kindly."},
        "better": {"AnswerTiny": "Answer,\n  and be BETTER.", "AnswerReason": "Say why."},
        "worse": {"AnswerTiny": "Answer briefly.", "NameKind": "Cat or dog?"},
    }
    engine = Engine()
    optimizer = build_optimizer("instruction-search", {"instructions": tried})
    outcome = compile_module(request_for(tmp_path, engine), optimizer)
    assert [c.how for c in outcome.candidates[1:]] == [f"instructions: {name}" for name in tried]
    assert len({c.state for c in outcome.candidates}) == 4  # the last, too, after one that was kept
    for answerer in outcome.best.answerers.values():
        assert answerer.signature.instructions == "Answer, and be BETTER."
    assert outcome.best.classify.signature.equals(Tiny().classify.signature)
    assert "BETTER" not in AnswerTiny.instructions

    again = Tiny()  # what was compiled can be compiled further
    restore(again, state_of(outcome.best), fields_of(outcome.best))
    optimizer.check(request_for(tmp_path / "again", engine, student=again))


@pytest.mark.parametrize(
    ("instructions", "said"),
    [
        ({}, "no instructions"),
        ({"a": {"AnswerTiny": "Answer.", "AnswerTinny": "Answer."}}, "'a' has instructions for AnswerTinny, which"),
        ({"b": {"AnswerReason": "Say why."}}, "'b' has instructions for no signature of what is compiled"),
    ],
)
def test_instructions_for_nothing_that_is_compiled_are_refused(instructions, said, tmp_path):
    engine = Engine()
    optimizer = build_optimizer("instruction-search", {"instructions": instructions})
    with pytest.raises(InputError, match=said):
        compile_module(request_for(tmp_path, engine), optimizer)
    assert engine.requests == []


def test_mipros_proposer_sees_no_long_texts_of_examples(tmp_path):
    prompt = Engine()
    trainset = [
        dspy.Example(**e.toDict(), references=["a secret reference"]).with_inputs("question") for e in examples(10)
    ]
    compile_module(
        request_for(tmp_path, Engine(), trainset=trainset, prompt_lm=tiny_lm(prompt, "tiny/prompt")),
        build_optimizer("mipro", OPTIONS["mipro"]),
    )
    assert any("Why does cat" in r for r in prompt.requests)
    assert not any("secret" in r for r in prompt.requests)


def test_mipro_can_leave_demonstrations_alone(tmp_path):
    student = Tiny()
    student.answerers["cat"].demos = [dspy.Example(question="Why does a cat purr?", answer="poor")]
    outcome = compile_module(
        request_for(tmp_path, Engine(), student=student),
        build_optimizer("mipro", {**OPTIONS["mipro"], "max_bootstrapped_demos": 0}),
    )
    assert outcome.best_candidate.score > outcome.base_candidate.score
    assert [d.answer for d in outcome.best.answerers["cat"].demos] == ["poor"]


def test_steps_begin_with_what_the_one_before_made(tmp_path):
    outcome = compile_module(
        request_for(tmp_path, Engine()),
        build_optimizer(
            "better-together", {"steps": ["bootstrap", "copro"], "options": {"copro": {"breadth": 2, "depth": 1}}}
        ),
    )
    best = outcome.best
    assert outcome.best_candidate.score > outcome.base_candidate.score
    assert best.classify.demos
    assert any(c.how == "in sequence: step 2: instruction" for c in outcome.candidates)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"steps": []}, "no step is named"),
        ({"steps": ["better-together"]}, "cannot be a step of itself"),
        ({"steps": ["magic"]}, "no optimizer is called 'magic'"),
        ({"steps": ["bootstrap"], "options": {"gepa": {}}}, "options are given for 'gepa'"),
        ({"steps": ["bootstrap"], "options": {"bootstrap": {"x": 1}}}, "optimizer 'bootstrap', option x"),
        ({"steps": ["gepa"], "options": {"gepa": {"train_examples": 2}}}, "'gepa' has train_examples of its own"),
        ({"steps": ["bootstrap", "bootstrap-finetune"]}, "cannot be fine-tuned"),
    ],
)
def test_steps_are_checked_before_anything_is_spent(options, problem, tmp_path):
    engine = Engine()
    with pytest.raises(InputError, match=problem):
        compile_module(request_for(tmp_path, engine), build_optimizer("better-together", options))
    assert engine.requests == []


def test_steps_are_estimated_on_the_examples_that_they_get(tmp_path):
    steps = {"steps": ["rule-search"], "options": {"rule-search": {"rules": ["Be BETTER."]}}, "validation_examples": 3}
    request = request_for(tmp_path, Engine())
    assert build_optimizer("better-together", steps).estimate(request).runs == (1 + 1) * 3


@pytest.mark.parametrize(("labelled", "demonstrated"), [(0, []), (2, ["classify"])])
def test_optuna_chooses_among_as_many_labelled_demonstrations_as_are_wanted(labelled, demonstrated, tmp_path):
    class Poor(Goodness):
        """By which no run is good enough for a demonstration."""

        def __call__(self, *args, **kwargs):
            return dspy.Prediction(score=0.5, feedback="")

    options = {"trials": 2, "pool": 2, "max_labeled_demos": labelled, "metric_threshold": 1}
    request = request_for(tmp_path, Engine(), metric=Poor())
    outcome = compile_module(request, build_optimizer("bootstrap-optuna", options))
    assert sorted({name for c in outcome.candidates for name in c.changed}) == demonstrated


def test_fine_tuning_names_the_providers_that_can(tmp_path):
    engine = Engine()
    for lm in (tiny_lm(engine), open_lm("openai/my-model", api_base="http://localhost:1/v1", api_key="EMPTY")):
        with pytest.raises(
            InputError, match=r"cannot be fine-tuned.*openai/MODEL at OpenAI.*databricks.*LocalProvider"
        ):
            compile_module(request_for(tmp_path, engine, task_lm=lm), build_optimizer("bootstrap-finetune"))
    assert engine.requests == []


class School(Provider):
    """Trains at once, and remembers on what."""

    def __init__(self):
        super().__init__()
        self.finetunable = True
        self.TrainingJob = TrainingJob
        self.taught = []

    def finetune(self, job, model, train_data, train_data_format, train_kwargs=None):
        self.taught += train_data
        return "tiny/taught"

    def __deepcopy__(self, memo):
        return self


class Pupil(Engine):
    """Is better once it has been to school."""

    def complete(self, request):
        if request.model == "tiny/taught":
            request = dspy.lm15.Request(
                model=request.model,
                messages=request.messages,
                system=f"{request.system}\nBe BETTER.",
                config=request.config,
            )
        return super().complete(request)


@pytest.mark.parametrize("name", ["bootstrap-finetune", "better-together"])
def test_a_provider_that_can_fine_tune_does(name, tmp_path):
    school = School()
    lm = tiny_lm(Pupil())
    lm.provider = school
    steps = ["bootstrap", "bootstrap-finetune", "bootstrap"]
    options = {"steps": steps} if name == "better-together" else {}
    outcome = compile_module(request_for(tmp_path, Engine(), task_lm=lm), build_optimizer(name, options))
    best = outcome.best_candidate
    assert school.taught and all("poor poor" not in str(t) for t in school.taught)
    assert (best.lm, best.score) == ("tiny/taught", 1.0)
    assert {c.lm for c in outcome.candidates if c.score == 1.0} == {"tiny/taught"}
    assert all(predictor.lm is None for predictor in outcome.best.predictors())
    taught = len(school.taught)
    again = compile_module(request_for(tmp_path, Engine(), task_lm=lm), build_optimizer(name, options))
    assert again.best_candidate == best
    assert len(school.taught) == taught  # which the provider would ask money for once more


def test_a_provider_that_fails_is_said_and_asked_again(tmp_path):
    class Closed(School):
        """Until somebody mends it."""

        shut = True

        def finetune(self, *given, **more):
            if self.shut:
                raise RuntimeError("the file has fewer than ten examples")
            return super().finetune(*given, **more)

    lm = tiny_lm(Pupil())
    lm.provider = school = Closed()
    with pytest.raises(LMUnavailable, match=r"fewer than ten examples.*--resume"):
        compile_module(request_for(tmp_path, Engine(), task_lm=lm), build_optimizer("bootstrap-finetune"))
    school.shut = False
    outcome = compile_module(request_for(tmp_path, Engine(), task_lm=lm), build_optimizer("bootstrap-finetune"))
    assert outcome.best_candidate.lm == "tiny/taught"


def test_nothing_is_trained_on_no_run_that_is_good_enough(tmp_path):
    lm = tiny_lm(Pupil())
    lm.provider = school = School()
    request = request_for(tmp_path, Engine(), task_lm=lm, metric=lambda *given: dspy.Prediction(score=0.5, feedback=""))
    with pytest.raises(InputError, match="good enough to train on"):
        compile_module(request, build_optimizer("bootstrap-finetune", {"metric_threshold": 1}))
    assert not school.taught
