from __future__ import annotations

import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import EACH_ANSWERED
from tests.scripted import scripted
from typedrag.optimizers.compile.targets import Focused, silence, unfrozen
from typedrag.programs import TypedRAG
from typedrag.programs.artifact.state import state_of

DECOMPOSER = "strategies['reason'].decomposer"


@pytest.fixture
def program():
    return TypedRAG(WordRetriever())


def test_only_the_chosen_predictors_are_seen_and_all_run(program):
    focused = Focused(program, [DECOMPOSER])
    assert [name for name, _ in focused.named_predictors()] == [f"program.{DECOMPOSER}"]
    with scripted() as engine:
        assert focused(question="Why is homemade bread dense?").answer == "AnswerReason says so."
    assert engine.asked() == ["DecomposeReason", "AnswerReason"]


def test_a_teleprompter_changes_the_chosen_alone(program):
    focused = Focused(program, [DECOMPOSER])
    before = state_of(program)
    trainset = [dspy.Example(question="Why is homemade bread dense?").with_inputs("question")]
    teleprompter = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=1, max_labeled_demos=0)
    with scripted():
        compiled = teleprompter.compile(focused, trainset=trainset)
    assert state_of(program) == before
    changed = state_of(compiled.program)
    assert {name for name in before if changed[name] != before[name]} == {DECOMPOSER}
    assert changed[DECOMPOSER].demos[0]["question"] == "Why is homemade bread dense?"


def test_predictors_can_be_replaced_by_name(program):
    focused = Focused(program, [DECOMPOSER])
    new = dspy.Predict(program.strategies["reason"].decomposer.signature)
    focused.map_named_predictors(lambda predictor: new)
    assert focused.program.strategies["reason"].decomposer is new


def test_a_copy_sees_its_own_predictors(program):
    copy = Focused(program, [DECOMPOSER]).deepcopy()
    [(_, predictor)] = copy.named_predictors()
    assert predictor is copy.program.strategies["reason"].decomposer
    assert predictor is not program.strategies["reason"].decomposer


def test_silent_predictors_ask_no_lm():
    published = TypedRAG(WordRetriever(), options=EACH_ANSWERED)
    silent = silence(published)
    with scripted() as engine:
        prediction = silent(question="Why is homemade bread dense?")
        published(question="Why is homemade bread dense?")
    assert prediction.answer == "" and {p.id for p in prediction.passages} == {"cold", "flour"}
    assert engine.asked() == [
        "DecomposeReason",
        "DecomposeReason",
        "AnswerSubQuery",
        "AnswerSubQuery",
        "AggregateReasons",
    ]


def test_what_was_compiled_can_be_compiled_again(program):
    program.strategies["reason"]._compiled = True
    assert DECOMPOSER not in dict(program.named_predictors())
    assert DECOMPOSER in dict(unfrozen(program).named_predictors())
