import dspy

from tests.scripted import ScriptedEngine
from typedrag.core.records import Usage
from typedrag.experiments.judges.judging import judge_each
from typedrag.lms.asking import ask
from typedrag.signatures.judging import GradeRelevance


def scorer(reply, seconds: float = 0.0) -> dspy.LM:
    engine = ScriptedEngine({GradeRelevance: reply}, seconds)
    return dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False)


def grade(question: str) -> int:
    reply = ask("grade", dspy.Predict(GradeRelevance), retries=0, question=question, answer="Yes.")
    return reply.prediction.grade


def counted(done: list[float]):
    return lambda progress: done.append(progress.done)


CHAT = "[[ ## grade ## ]]\n2\n\n[[ ## completed ## ]]"


def test_judgments_come_in_the_order_of_the_items_with_what_they_took():
    lm = scorer(CHAT, seconds=0.01)
    done: list[int] = []
    judged = judge_each(grade, ["a?", "b?", "c?"], scorer=lm, threads=3, listener=counted(done))
    assert judged.judgments == (("a?", 2), ("b?", 2), ("c?", 2))
    assert judged.spent.usage == Usage(3, 30, 15)
    assert judged.seconds > 0
    assert done == [0, 1, 2, 3, 3]


def test_a_failure_is_that_of_one_item():
    judged = judge_each(grade, ["a?", "b?"], scorer=scorer(lambda p: "nonsense" if "b?" in p else CHAT), threads=2)
    assert judged.judgments == (("a?", 2),)
    [(item, problem)] = judged.failures
    assert item == "b?" and "grade" in problem
    assert judged.spent.usage.lm_calls == 3  # one for a, and one for each adapter that could not read b


def test_no_trace_is_left_behind():
    with dspy.context(trace=[]):
        judge_each(grade, ["a?"], scorer=scorer(CHAT))
        assert dspy.settings.trace == []
