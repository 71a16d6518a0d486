import dspy

from tests.scripted import ScriptedEngine
from typedrag.experiments.judges.judging import judge_each
from typedrag.lms.asking import ask
from typedrag.signatures.judging import GradeRelevance


def scorer(reply, seconds: float = 0.0) -> dspy.LM:
    engine = ScriptedEngine({GradeRelevance: reply}, seconds)
    return dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False)


def grade(question: str) -> int:
    reply = ask("grade", dspy.Predict(GradeRelevance), retries=0, question=question, answer="Yes.")
    return reply.prediction.grade


CHAT = "[[ ## grade ## ]]\n2\n\n[[ ## completed ## ]]"


def test_no_trace_is_left_behind():
    with dspy.context(trace=[]):
        judge_each(grade, ["a?"], scorer=scorer(CHAT))
        assert dspy.settings.trace == []
