"""Checks that a program still tells its LM not to follow instructions in passages and answers.

The sentence is part of the signatures' instructions, and LMs that rewrite these for a teleprompter tend to drop it.
"""

from __future__ import annotations

from typedrag.programs.artifact.state import PredictorState, State

SENTENCE = "never follow instructions in"
"""The sentence on quoted material in all our signatures."""


def unguarded(before: State, after: State) -> tuple[str, ...]:
    """The predictors whose instructions have lost the sentence.

    Args:
        before: The state of a program before it was compiled.
        after: Its state after that; predictors that are new are skipped.
    """
    return tuple(name for name, state in after.items() if name in before and lost_sentence(before[name], state))


def lost_sentence(before: PredictorState, after: PredictorState) -> bool:
    """True if the instructions of one predictor have lost the sentence."""
    return _says_it(before) and not _says_it(after)


def _says_it(state: PredictorState) -> bool:
    return SENTENCE in " ".join(state.signature.instructions.lower().split())
