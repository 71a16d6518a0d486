"""A written example of answers that get worse; without it a small LM writes three good ones."""

from __future__ import annotations

import dspy

from typedrag.signatures.fields import WorseningAnswers
from typedrag.signatures.reference_answers import WriteWorseAnswers

REFERENCE_ANSWER_DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example] = {
    WriteWorseAnswers: dspy.Example(
        question="Why are manhole covers round?",
        right_answer="A round cover cannot fall through its own hole, fits whichever way it is turned, and rolls.",
        answers=WorseningAnswers(
            acceptable="Mostly because a round one cannot drop into the hole, I believe.",
            poor="Because the streets were full of carriages, and wheels are round too.",
            senseless="My uncle keeps his coins in a jar, which is round, and he never counts them.",
        ),
    ),
}
