"""A question that ends a conversation, made to stand alone: programs search and answer without what was said before."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trail import fall_back, record
from typedrag.records import Step
from typedrag.signatures.standalone import StandaloneQuestion, Turn
from typedrag.texts.words import first_words

_TURNS = 6
"""That are looked at, the last ones: what a message leans on was said a moment ago."""
_WORDS = 120
"""Of a turn, the first ones: that many say what it is about, and a small LM's prompt has room for six times as many."""


def stand_alone(message: str, turns: Sequence[Turn], retries: int) -> str:
    """The question that a message asks after some turns; the message as it is where the LM's reply cannot be read.

    Args:
        message: The last one, a user's.
        turns: Those before it, the oldest first.
        retries: How often to ask again.

    Raises:
        LMUnavailable: If the LM cannot be used.
    """
    predict = dspy.Predict(StandaloneQuestion)  # no program's own: it is compiled and saved with none
    heard = [Turn(speaker=turn.speaker, text=first_words(turn.text, _WORDS)) for turn in turns[-_TURNS:]]
    try:
        reply = ask("stand alone", predict, retries=retries, conversation=heard, question=message)
    except StepFailed as failure:
        fall_back(failure, "the last message is taken as it is")
        return message
    question = " ".join(reply.prediction.standalone_question.root.split()) or message
    record(Step("stand alone", message, question, seconds=reply.seconds, usage=reply.usage))
    return question
