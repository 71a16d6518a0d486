import json

import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import StepFailed
from typedrag.core.question_types import SubQuestionType
from typedrag.lms.lm import use_lm
from typedrag.signatures.sub_question_coverage import (
    DecomposeIntoSubQuestions,
    DecomposePlainly,
    TypePlainly,
    TypeSubQuestions,
)
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper

TEN = [f"What is part {n} of it?" for n in range(10)]


def test_a_question_is_written_once():
    lm, _ = scripted_judge(
        {DecomposeIntoSubQuestions: {"sub_questions": [*TEN, "What is  PART 3 of it?", "And this?"]}}
    )
    with use_lm(lm):
        assert SubQuestionDecomposer()("Why?").sub_questions == [*TEN, "And this?"]


@pytest.mark.parametrize("written", [TEN[:3], TEN * 3])
def test_as_published_all_that_is_written_is_used(written):
    lm, _ = scripted_judge({DecomposePlainly: {"sub_questions": written}})
    with use_lm(lm):
        assert SubQuestionDecomposer(plain=True)("Why?").sub_questions == written


@pytest.mark.parametrize("written", [TEN[:3], [*TEN[:9], 3], "What is it?"])
def test_a_decomposition_of_another_form_is_a_failure(written):
    lm, engine = scripted_judge({DecomposeIntoSubQuestions: {"sub_questions": written}})
    with use_lm(lm), pytest.raises(StepFailed, match="decompose"):
        SubQuestionDecomposer(retries=1)("Why?")
    assert len(engine.prompts) == 2


@pytest.mark.parametrize(("per_call", "calls"), [(1, 10), (4, 3), (20, 1)])
def test_types_stay_with_their_sub_questions_however_many_a_call_has(per_call, calls):
    def reply(prompt: str) -> dict:
        asked = json.loads(prompt.partition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
        return {"types": {k: "background" if "part 7" in text else "core" for k, text in asked.items()}}

    lm, engine = scripted_judge({TypeSubQuestions: reply})
    with use_lm(lm):
        types = SubQuestionTyper(sub_questions_per_call=per_call)("Why?", TEN).types
    assert [i for i, t in enumerate(types) if t is SubQuestionType.BACKGROUND] == [7]
    assert len(types) == 10 and len(engine.prompts) == calls


def test_examples_are_shown_unless_it_is_asked_without():
    lm, engine = scripted_judge({TypeSubQuestions: {"types": {"q1": "core", "q2": "background"}}})
    with use_lm(lm):
        for few_shot in (True, False):
            SubQuestionTyper(few_shot=few_shot)("Why?", TEN[:2])
    assert [len(messages) for messages in engine.messages] == [3, 1]  # the example is a message and its reply
    lm, engine = scripted_judge({TypePlainly: {"types": {"q1": "core"}}})
    with use_lm(lm):
        SubQuestionTyper(plain=True)("Why?", TEN[:1])
    assert [len(messages) for messages in engine.messages] == [6 * 2 + 1]  # two of each type, one by one


@pytest.mark.parametrize(
    "types",
    [{"q1": "core"}, {"q1": "core", "q2": "main"}, {"q1": "core", "q2": "core", "q3": "core"}, ["core", "core"]],
)
def test_types_that_are_not_one_for_each_are_a_failure(types):
    lm, _ = scripted_judge({TypeSubQuestions: {"types": types}})
    with use_lm(lm), pytest.raises(StepFailed, match="type"):
        SubQuestionTyper(retries=0)("Why?", TEN[:2])
