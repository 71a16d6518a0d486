import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import EACH_ANSWERED
from tests.scripted import scripted
from typedrag.optimizers.compile.targets import PredictorSubset, mute_writers
from typedrag.programs import TypedRAG
from typedrag.programs.artifact import dump_state

DECOMPOSER = "strategies['reason'].decomposer"


@pytest.fixture
def program():
    return TypedRAG(WordRetriever())


def test_only_the_chosen_predictors_are_seen_and_all_run(program):
    focused = PredictorSubset(program, [DECOMPOSER])
    assert [name for name, _ in focused.named_predictors()] == [f"program.{DECOMPOSER}"]
    with scripted() as engine:
        assert focused(question="Why is homemade bread dense?").answer == "AnswerReason says so."
    assert engine.asked() == ["DecomposeReason", "AnswerReason"]


def test_a_teleprompter_changes_the_chosen_alone(program):
    focused = PredictorSubset(program, [DECOMPOSER])
    before = dump_state(program)
    trainset = [dspy.Example(question="Why is homemade bread dense?").with_inputs("question")]
    teleprompter = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=1, max_labeled_demos=0)
    with scripted():
        compiled = teleprompter.compile(focused, trainset=trainset)
    assert dump_state(program) == before
    changed = dump_state(compiled.program)
    assert {name for name in before if changed[name] != before[name]} == {DECOMPOSER}
    assert changed[DECOMPOSER].demos[0]["question"] == "Why is homemade bread dense?"


def test_silent_predictors_ask_no_lm():
    published = TypedRAG(WordRetriever(), options=EACH_ANSWERED)
    silent = mute_writers(published)
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
