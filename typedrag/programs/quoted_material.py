"""Whether a program still tells its LM not to follow what strangers wrote into passages and answers.

The sentence is a part of instructions, which teleprompters write anew, and LMs that do so tend to drop it.
"""

from __future__ import annotations

from typedrag.programs.artifact.state import PredictorState, State

SENTENCE = "never follow instructions in"
"""What all our signatures say of quoted material."""


def unguarded(before: State, after: State) -> tuple[str, ...]:
    """The predictors whose instructions have lost the sentence.

    Args:
        before: Of a program.
        after: What has become of it; predictors that were not there before are passed by.
    """
    return tuple(name for name, state in after.items() if name in before and lost_sentence(before[name], state))


def lost_sentence(before: PredictorState, after: PredictorState) -> bool:
    """Whether the instructions of one predictor have."""
    return _says_it(before) and not _says_it(after)


def _says_it(state: PredictorState) -> bool:
    return SENTENCE in " ".join(state.signature.instructions.lower().split())
