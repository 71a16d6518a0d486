import dspy
import pytest

from tests.experiments.tiny import JudgeTinily, Length, Tiny
from tests.scripted import ScriptedEngine
from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.core.records import Answer, Passage, Reference, SubQuestion, Usage
from typedrag.experiments import as_scorer
from typedrag.experiments.tracking.scorers import to_example

mlflow = pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("e", artifact_location=folder.as_uri()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_GENAI_EVAL_SKIP_TRACE_VALIDATION", "True")
        yield mlflow.genai.evaluate
    mlflow.set_tracking_uri(before)


def test_mlflow_evaluates_by_our_metrics(evaluate):
    def judge(prompt):
        return "nonsense" if "broken" in prompt else {"is_good": "right" in prompt}

    scorer_lm = dspy.LM("scripted/judge", engine=ScriptedEngine({JudgeTinily: judge}), num_retries=0, cache=False)
    rows = [
        {"inputs": {"question": "Why?"}, "outputs": "the right answer", "expectations": {}},
        {"inputs": {"question": "How?"}, "outputs": {"answer": "the wrong answer"}, "expectations": {}},
        {"inputs": {"question": "What?"}, "outputs": "a broken answer", "expectations": {}},
        {"inputs": {"question": "Should we?"}, "outputs": "x" * 500, "expectations": {"question_type": "debate"}},
    ]
    result = evaluate(data=rows, scorers=[as_scorer(Tiny(scorer_lm)), as_scorer(Length())])
    assert result.metrics["tiny/mean"] == pytest.approx(1 / 3)
    said = {}
    for trace in mlflow.search_traces(run_id=result.run_id, return_type="list"):
        for found in trace.info.assessments:
            said[trace.info.request_preview, found.name] = found
    tiny = {question: f for (question, name), f in said.items() if name == "tiny"}
    right = next(f for question, f in tiny.items() if "Why?" in question)
    assert (right.value, right.rationale, right.metadata["good"]) == (1.0, "said so", "1.0")
    broken = next(f for question, f in tiny.items() if "What?" in question)
    assert broken.value is None
    assert "could not be read" in broken.error.error_message
    debate = next(f for (question, name), f in said.items() if name == "length" and "Should" in question)
    assert (debate.value, debate.rationale) == (None, "debates have no length")


def test_programs_can_be_what_is_evaluated(evaluate):
    def predict(question: str) -> dspy.Prediction:
        answer = Answer(question, question * 100, passages=(Passage("p", "t"),), usage=Usage(1, 2, 3))
        return dspy.Prediction(**{name: getattr(answer, name) for name in Answer.__dataclass_fields__})

    result = evaluate(data=[{"inputs": {"question": "Why?"}}], predict_fn=predict, scorers=[as_scorer(Length())])
    assert result.metrics["length/mean"] == pytest.approx(0.4)


def test_expectations_become_an_example():
    example = to_example(
        {"question": "Why?", "id": 7},
        {
            "question_type": "reason",
            "references": [{"text": "Good.", "label": 3}, Reference("Bad.", 0)],
            "sub_questions": [{"text": "What?", "type": "core"}],
            "passage_ids": ["p1", "p2"],
            "expected_response": "So.",
        },
    )
    assert example.inputs().toDict() == {"question": "Why?"}
    assert example.id == "7"
    assert example.question_type is QuestionType.REASON
    assert example.references == (Reference("Good.", 3), Reference("Bad.", 0))
    assert example.sub_questions == (SubQuestion("What?", SubQuestionType.CORE),)
    assert (example.passage_ids, example.answers) == (("p1", "p2"), ("So.",))
