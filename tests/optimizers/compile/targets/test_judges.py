from dataclasses import replace

import dspy
import pytest

from tests.optimizers.compile.targets.labels import LEARNT, covered, learning_lm, ranked, typed
from typedrag.core.errors import InputError
from typedrag.lms.lm import use_lm
from typedrag.metrics import Objective
from typedrag.metrics.judges.linkage import Convention
from typedrag.optimizers.compile.prompt_optimizers.candidates import read_call
from typedrag.optimizers.compile.targets import CoverageJudgeTarget, LinkageJudgeTarget, SubQuestionTyperTarget

TARGETS = [
    pytest.param(LinkageJudgeTarget(), ranked(), id="linkage"),
    pytest.param(CoverageJudgeTarget(), covered(), id="coverage"),
    pytest.param(SubQuestionTyperTarget(), typed(), id="types"),
]


def taught(target) -> dspy.Module:
    """The judge as a good compile would leave it."""
    student = target.student()
    [predictor] = student.predictors()
    predictor.signature = predictor.signature.with_instructions(LEARNT)
    return student


def mean(target, student, examples) -> float:
    with use_lm(learning_lm()):
        return sum(target.metric(e, student(**e.inputs())).score for e in examples) / len(examples)


@pytest.mark.parametrize(("target", "dataset"), TARGETS)
def test_a_judge_that_learns_scores_better_by_people_s_labels(target, dataset):
    examples = target.examples(dataset)
    assert mean(target, taught(target), examples) == 1
    assert mean(target, target.student(), examples) < 0.8


@pytest.mark.parametrize(("target", "dataset"), TARGETS)
def test_what_people_said_of_a_question_is_in_one_split(target, dataset):
    parts = {split: target.examples(dataset, split) for split in ("train", "validation", "test")}
    questions = [{e.question for e in part} for part in parts.values()]
    assert all(questions) and sum(map(len, questions)) == len(set().union(*questions))
    ids = [e.id for part in parts.values() for e in part]
    assert sorted(ids) == sorted(e.id for e in target.examples(dataset)) and len(set(ids)) == len(ids)


@pytest.mark.parametrize(("target", "dataset"), TARGETS)
def test_a_reflecting_optimizer_hears_what_people_said(target, dataset):
    example, student = target.examples(dataset)[-1], target.student()
    objective = Objective([(target.metric, 1.0)], read_call)
    with use_lm(learning_lm()), dspy.context(trace=[]):
        prediction = student(**example.inputs())
        call = dspy.settings.trace[0]
    [(name, _)] = student.named_predictors()
    said = objective(example, prediction, [call], name, [call]).feedback
    assert "people" in said.lower() and "laid to" not in said


def test_candidates_are_of_all_labels():
    for convention in Convention:
        target = LinkageJudgeTarget(convention=convention)
        examples = target.examples(ranked(2))
        assert sorted(e.rank for e in examples if e.question == "Why is thing 0 so?") == [1, 2, 3]
        assert all(e.tied and e.candidate not in e.references for e in examples)
        assert target.student().convention is target.metric.convention is convention


def test_sub_questions_on_which_people_are_divided_teach_nothing():
    for example in SubQuestionTyperTarget().examples(typed()):
        assert len(example.types) == 3 and not any("Divided" in text for text in example.sub_questions.values())


def test_labels_of_too_few_questions_cannot_be_split():
    with pytest.raises(InputError, match="three"):
        CoverageJudgeTarget().examples(covered(2), "train")
    with pytest.raises(InputError, match="split"):
        CoverageJudgeTarget().examples(covered(), "dev")
    with pytest.raises(InputError, match="sub-question-types"):
        SubQuestionTyperTarget().examples(covered())


def test_a_test_takes_questions_whose_labels_have_an_order():
    assert [len(e.cases) for e in CoverageJudgeTarget().test_examples(covered())] == [2]
    none = covered()
    rows = tuple(row.copy(covered=False) for row in none.examples)
    assert CoverageJudgeTarget().test_examples(replace(none, examples=rows)) == []
