"""The errors that typedrag raises, in the three kinds that are never mixed.

Bad input (`InputError`) is refused before any LM call. A step that failed (`StepFailed`) is met
inside the program by a documented fallback and only reaches a caller where there is none. A fault
of the system (`Unavailable`) is always raised, never an empty answer.
"""

from __future__ import annotations

import errno

from typedrag.redaction import without_keys


class TypedRAGError(Exception):
    """What typedrag refuses or cannot do, said without keys.

    Args:
        problem: What is wrong, naming the input.
        mend: What the user can do about it.
    """

    def __init__(self, problem: str, mend: str = "") -> None:
        problem = without_keys(problem)
        super().__init__(f"{problem.rstrip('.')}. {mend}" if mend else problem)
        self.problem = problem
        self.mend = mend


class InputError(TypedRAGError):
    """A question, file, name or option that cannot be used as given."""


class StepFailed(TypedRAGError):
    """One step of a program failed: a reply that cannot be read, or no LM calls left.

    Args:
        step: The name of the step, such as `decompose`.
        problem: What happened.
    """

    def __init__(self, step: str, problem: str) -> None:
        super().__init__(f"step '{step}' failed: {problem}")
        self.step = step
        self.problem = problem


class NotMeasurable(TypedRAGError):
    """A metric has nothing to measure a question by, such as no reference answers."""


class Unavailable(TypedRAGError):
    """What typedrag needs cannot be used: a store, a hub, a dataset's home, a model."""


class StorageFull(Unavailable):
    """A disk has no room left, a quota is used up, or it fails."""


class LMUnavailable(Unavailable):
    """The LM cannot be used: no model, no key, no server, or a server that fails."""


class CallFailed(LMUnavailable):
    """The LM failed in a way that may be the fault of what it was asked: it was too slow, sent what is no reply, or
    refused every call of a question. In a run, others are still asked."""


class RetrievalError(Unavailable):
    """An index or a reranker cannot be used: absent, half-built or unreadable."""


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def unusable(place: object, error: OSError) -> TypedRAGError:
    """The error to raise for a file or folder that the system refuses.

    Args:
        place: Its path.
        error: As the system gave it: a disk that is full or fails is a fault of the system, any other
            place can be exchanged for another.
    """
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StorageFull(f"{place}: {reason}", "Make room; what was done until then is kept")
    return InputError(f"{place}: {reason}", "Name another file or folder")


def first_line(error: Exception) -> str:
    """The first line that an error's message has, without keys; else its name."""
    return without_keys(next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__))
