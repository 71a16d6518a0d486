"""The last question of a conversation, rewritten to stand alone: programs do not see the turns before it."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, record_fallback
from typedrag.signatures.answering import StandaloneQuestion, Turn
from typedrag.text.words import first_words

_TURNS = 6
"""The number of last turns that are read: a message mostly refers to what was said just before."""
_WORDS = 120
"""The first words of a turn that are read: enough to tell its topic, and six such turns fit a small LM's prompt."""


def stand_alone(message: str, turns: Sequence[Turn], retries: int) -> str:
    """The question that a message asks, rewritten to stand alone; the message itself if the reply cannot be parsed.

    Args:
        message: The last message, by a user.
        turns: The turns before it, oldest first.
        retries: How often to ask again.
    """
    predict = dspy.Predict(StandaloneQuestion)  # belongs to no program: never compiled or saved with one
    conversation = [Turn(speaker=turn.speaker, text=first_words(turn.text, _WORDS)) for turn in turns[-_TURNS:]]
    try:
        reply = ask("stand alone", predict, retries=retries, conversation=conversation, question=message)
    except StepFailed as failure:
        record_fallback(failure, "the last message is taken as it is")
        return message
    question = " ".join(reply.prediction.standalone_question.root.split()) or message
    add_step(Step("stand alone", message, question, seconds=reply.seconds, usage=reply.usage))
    return question
