"""One answer from several (Typed-RAG, figures 15 and 16)."""

import dspy

from typedrag.signatures.fields import PerspectiveAnswer, QuestionAnswer
from typedrag.signatures.roles import Role, plays


@plays(Role.COMBINER, module="aggregator")
class AggregateReasons(dspy.Signature):
    """Explain what the original question asks, briefly and clearly, out of the answers to its
    parts. Keep every cause that bears on the original question, say it once, and leave out what
    does not bear on it."""

    question: str = dspy.InputField(desc="the original question")
    sub_answers: list[QuestionAnswer] = dspy.InputField()
    answer: str = dspy.OutputField(desc="one to three paragraphs")


@plays(Role.COMBINER, module="aggregator")
class ArrangeSteps(dspy.Signature):
    """Tell how to do what the original question asks, as steps to follow, out of the answers to its
    parts, which are in the order of the work. Keep that order, say each step once, and leave out
    what is no part of the task."""

    question: str = dspy.InputField(desc="the original question")
    sub_answers: list[QuestionAnswer] = dspy.InputField(desc="in the order of the work")
    answer: str = dspy.OutputField(desc="the steps in order, one to three paragraphs")


@plays(Role.COMBINER, module="debate-mediator")
class MediatePerspectives(dspy.Signature):
    """Answer a question on which people disagree. Give each perspective its due in a fair, short
    and balanced answer: its strongest points, where the perspectives oppose each other, and where
    they agree. Speak about the topic itself, never of debates, participants or responses."""

    question: str = dspy.InputField()
    topic: str = dspy.InputField()
    perspectives: list[PerspectiveAnswer] = dspy.InputField()
    answer: str = dspy.OutputField(desc="one or two paragraphs")
