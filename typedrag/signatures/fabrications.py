"""The prompts of the fabrications' builder: answers that are right, and answers that only sound right.

All have one form, so that no judge can tell them apart by length or manner.
"""

import dspy

from typedrag.signatures.fields import ShortAnswer, StatedAnswer

_STATED = "one or two full sentences, without a word on how sure you are"


class StateAnswer(dspy.Signature):
    """Answer the question in one or two full sentences that say what the right answer says, in the
    same words where it is a name, a date or a number. Add nothing that is not common knowledge."""

    question: str = dspy.InputField()
    right_answer: str = dspy.InputField(desc="it may be no more than a few words")
    answer: StatedAnswer = dspy.OutputField(desc=_STATED)


class GuessAnswer(dspy.Signature):
    """Answer the question in one or two full sentences from what you know. If you do not know, guess:
    name the person, the date, the number or the cause that is the likeliest."""

    question: str = dspy.InputField()
    answer: StatedAnswer = dspy.OutputField(desc=_STATED)


class ProposeWrongAnswer(dspy.Signature):
    """For a quiz, name one wrong answer to the question that somebody who does not know would take
    for right. It is of the same kind as the right answer and about as long: another person for a
    person, another date for a date, another number for a number, another cause for a cause."""

    question: str = dspy.InputField()
    right_answer: str = dspy.InputField()
    wrong_answer: ShortAnswer = dspy.OutputField(desc="a few words, none of them those of the right answer")
