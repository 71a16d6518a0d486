"""What is particular to some optimizers."""

import dspy
import pytest
from dspy.teleprompt.bootstrap_trace import FailedPrediction

from tests.optimizers.tiny import AnswerTiny, Engine, Goodness, Tiny, examples, request_for
from typedrag.core.errors import InputError, StepFailed
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer
from typedrag.optimizers.compile.prompt_optimizers.gepa import SameTypeBatchSampler, with_unique_names
from typedrag.programs.artifact import dump_state, load_state, signature_fields


def test_gepa_reflects_on_the_calls_of_the_predictor_at_hand(tmp_path):
    """The two answerers have the same signature, by which GEPA tells predictors apart."""
    cat, dog = with_unique_names(Tiny()).predictors()[1:]
    assert not cat.signature.equals(dog.signature)
    assert cat.signature.instructions == dog.signature.instructions == AnswerTiny.instructions
    engine = Engine()
    request = request_for(tmp_path, engine, trainset=examples(20))
    compile_module(request, build_optimizer("gepa", {"evaluations": 8, "minibatch_size": 4}))
    reflections = [r for r in engine.requests if "new_instruction" in r]
    on_answers = [r for r in reflections if "Part 1" in r or "Part 2" in r]
    assert on_answers
    assert all(("cat" in r.split("sleep")[0]) != ("dog" in r.split("sleep")[0]) for r in on_answers)
    assert all(not ("Why does cat" in r and "Why does dog" in r) for r in on_answers)


def test_minibatches_are_of_one_type_in_turn():
    sampler = SameTypeBatchSampler(["reason", "debate", "reason", "reason", "debate"], size=2, seed=0)
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

        def text(self, request, said):
            of_cats = "cat" in request.messages[-1].text and "Answer the question in a word." in str(request.system)
            return "Meow, said the answer" if of_cats else super().text(request, said)

    class Falling(Tiny):
        def answer_part(self, kind, question):
            try:
                return super().answer_part(kind, question)
            except StepFailed:  # as strategies do
                return "poor"

    traces, engine = [], Mumbling()
    metric = Goodness(lambda gold, pred, trace: traces.append(trace))
    request = request_for(tmp_path, engine, student=Falling(), metric=metric)
    compile_module(request, build_optimizer("gepa", {"evaluations": 6, "minibatch_size": 4}))
    reflections = [r for r in engine.requests if "new_instruction" in r]
    assert any("Meow, said the answer" in r for r in reflections)
    assert not any(isinstance(call[2], FailedPrediction) for trace in traces for call in trace or ())


def test_only_rules_that_help_are_kept(tmp_path):
    rules = ["Be kind.", "Be BETTER.", "Be brief."]
    outcome = compile_module(request_for(tmp_path, Engine()), build_optimizer("rule-search", {"rules": rules}))
    assert [c.how for c in outcome.candidates[1:]] == [f"rule: {rule}" for rule in rules]
    for answerer in outcome.best.answerers.values():
        assert answerer.signature.instructions == f"{AnswerTiny.instructions}\nBe BETTER."
    assert outcome.best.classify.signature.equals(Tiny().classify.signature)  # it writes no answer
    assert "BETTER" not in AnswerTiny.instructions


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
    load_state(again, dump_state(outcome.best), signature_fields(outcome.best))
    optimizer.check(request_for(tmp_path / "again", engine, student=again))


MISTYPED = {"a": {"AnswerTiny": "Answer.", "AnswerTinny": "Answer."}}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("rule-search", {"outputs": ["rating"]}, "writes rating"),
        ("rule-search", {"rules": []}, "no rule"),
        ("instruction-search", {}, "no instructions"),
        ("instruction-search", {"instructions": MISTYPED}, "'a' has instructions for AnswerTinny, which"),
        ("instruction-search", {"instructions": {"b": {"AnswerReason": "Say why."}}}, "'b' has instructions for no"),
    ],
)
def test_rules_and_instructions_for_nothing_that_is_compiled_are_refused(name, options, said, tmp_path):
    engine = Engine()
    with pytest.raises(InputError, match=said):
        compile_module(request_for(tmp_path, engine), build_optimizer(name, options))
    assert engine.requests == []
