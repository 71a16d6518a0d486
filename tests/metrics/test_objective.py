from typing import ClassVar

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.core.errors import InputError, NotMeasurable, StepFailed
from typedrag.core.records import Step
from typedrag.metrics import Metric, Objective, Scored, objective_risk, parse_objective
from typedrag.metrics.metric import PredictorCall
from typedrag.signatures.roles import Role

EXAMPLE = dspy.Example(question="Why?", good=1.0).with_inputs("question")
PREDICTION = dspy.Prediction(answer="Because.")


def metric(name: str, score: float | Exception, said: str = "", heard: str = "") -> Metric:
    """A metric of this name that gives a score, says one thing to all and perhaps another to predictors."""

    class Given(Metric):
        name: ClassVar[str] = "given"

        def score(self, example, prediction):
            if isinstance(score, Exception):
                raise score
            return Scored(score, said)

        def require(self, example):
            if isinstance(score, NotMeasurable):
                raise score

        def predictor_feedback(self, call, example, prediction, scored):
            return heard or super().predictor_feedback(call, example, prediction, scored)

    Given.name = name
    return Given()


def test_the_score_is_the_weighted_mean():
    objective = Objective([(metric("a", 1.0), 1.0), (metric("b", 0.25), 3.0)])
    found = objective(EXAMPLE, PREDICTION)
    assert found.score == pytest.approx((1 + 0.75) / 4)
    assert found.scores == {"a": 1.0, "b": 0.25}
    assert objective.name == "a=1,b=3"


def test_what_cannot_be_measured_is_left_out_of_its_mean():
    objective = Objective([(metric("a", 0.5), 1.0), (metric("b", NotMeasurable("no labels")), 9.0)])
    assert objective(EXAMPLE, PREDICTION).score == 0.5
    nothing = Objective([(metric("a", NotMeasurable("no labels")), 1.0)])
    with pytest.raises(NotMeasurable, match="no labels"):
        nothing(EXAMPLE, PREDICTION)
    assert nothing.measurable([EXAMPLE]) == [] and objective.measurable([EXAMPLE]) == [EXAMPLE]


def test_an_answer_that_escapes_a_metric_scores_0_by_it():
    """Faithfulness 0.2 and linkage 0.8 are more than linkage 0.8 and no passage to be faithful to."""

    class Faithful(Metric):
        name: ClassVar[str] = "faithful"

        def score(self, example, prediction):
            if not prediction.get("passages"):
                raise NotMeasurable("the answer has no passages")
            return Scored(0.2)

    objective = Objective([(Faithful(), 1.0), (metric("linkage", 0.8), 1.0)])
    assert objective(EXAMPLE, dspy.Prediction(answer="So.", passages=["p"])).score == pytest.approx(0.5)
    escaped = objective(EXAMPLE, PREDICTION)
    assert escaped.score == pytest.approx(0.4) and "the answer has no passages" in escaped.feedback


@pytest.mark.parametrize("found", [Scored(float("nan")), Scored(0.5, measures={"mrr": float("nan")})])
def test_nan_is_refused_where_a_metric_returns_it(found):
    class Undefined(Metric):
        name: ClassVar[str] = "undefined"

        def score(self, example, prediction):
            return found

    with pytest.raises(InputError, match=r"'undefined' gives question 'q1' no number as its (score|mrr), but NaN"):
        Undefined()(dspy.Example(id="q1", question="Why?"), PREDICTION)


def test_a_judge_that_fails_leaves_no_score():
    objective = Objective([(metric("a", 0.5), 1.0), (metric("b", StepFailed("rank", "unreadable")), 1.0)])
    with pytest.raises(StepFailed, match="unreadable"):
        objective(EXAMPLE, PREDICTION)


def heard(role: Role, metrics, prediction=PREDICTION) -> str:
    """The feedback for a predictor of this role."""
    objective = Objective(metrics, lambda pred_name, pred_trace: PredictorCall(role))
    return objective(EXAMPLE, prediction, [], "predictor", [object()]).feedback


def test_feedback_is_for_the_predictor_at_hand():
    parts = [(metric("a", 0.5, "To all.", "To it."), 1.0), (metric("b", 1.0, "Of the answer."), 1.0)]
    whole = Objective(parts)(EXAMPLE, PREDICTION).feedback
    assert whole == "Score 0.75 of 1 (a 0.50, b 1.00). To all. Of the answer."
    assert heard(Role.ANSWERER, parts).endswith("To it. Of the answer.")
    assert heard(Role.SEARCHER, parts).endswith("To it.")


def test_a_predictor_is_not_blamed_for_what_it_cannot_mend():
    said = heard(Role.CLASSIFIER, [(metric("a", 0.5, "To all."), 1.0)])
    assert said == "Score 0.50 of 1. Nothing in it can be laid to this step."


def test_what_writes_queries_hears_what_became_of_them():
    queries = (Step("query", "yeast gas", passage_ids=("p1",)), Step("query", "glutn"))
    steps = (Step("decompose", dropped=("fish? (off the topic)",)), Step("retrieve", "2 queries", steps=queries))
    prediction, metrics = dspy.Prediction(answer="", steps=steps), [(metric("a", 0.5), 1.0)]
    said = heard(Role.SEARCHER, metrics, prediction)
    assert "Dropped before the search: «fish? (off the topic)»" in said
    assert "Nothing was found for: «glutn»" in said and "yeast gas" not in said
    assert "Dropped" not in Objective(metrics)(EXAMPLE, prediction).feedback


def test_a_classifier_hears_that_the_strategy_of_its_type_failed():
    prediction = dspy.Prediction(answer="", fallback="no comparison was found; answered the evidence-based way")
    assert "no comparison was found" in heard(Role.CLASSIFIER, [(metric("a", 0.5), 1.0)], prediction)
    assert "no comparison was found" in Objective([(metric("a", 0.5), 1.0)])(EXAMPLE, prediction).feedback


@pytest.mark.parametrize(
    "spec",
    ["", "linkage,", "nonsense", "linkage=0", "linkage=-1", "linkage=much", "linkage,linkage=2", "f1=inf", "f1=nan"],
)
def test_specs_that_describe_nothing_are_refused(spec):
    with pytest.raises(InputError):
        parse_objective(spec)


def test_weights_are_1_where_a_spec_gives_none():
    assert parse_objective("linkage, f1=3") == {"linkage": 1.0, "f1": 3.0}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("linkage", "linkage without truthfulness pays for fabrications: of 38 wrong answers"),
        ("coverage=2,similarity", "coverage without truthfulness pays for fabrications: what is made up"),
        ("linkage,coverage", "linkage and coverage without truthfulness pay for fabrications: "),
        ("linkage,coverage,truthfulness=0.1", ""),
        ("similarity", ""),
    ],
)
def test_what_a_judge_alone_risks_is_said(spec, said):
    risk = objective_risk(parse_objective(spec))
    assert risk.startswith(said) and bool(risk) == bool(said)
    assert not risk or (risk.endswith("; add truthfulness=1") and "\n" not in risk)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1e6)), min_size=1, max_size=6))
def test_the_score_lies_between_the_least_and_the_greatest(parts):
    found = Objective([(metric(f"m{i}", score), weight) for i, (score, weight) in enumerate(parts)])(
        EXAMPLE, PREDICTION
    )
    scores = [score for score, _ in parts]
    assert min(scores) - 1e-9 <= found.score <= max(scores) + 1e-9 and 0 <= found.score <= 1
