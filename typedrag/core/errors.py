"""The errors that typedrag raises, in three kinds that are never mixed.

Bad input (`InputError`) is refused before any LM call. A failed step (`StepFailed`) is answered by a documented
fallback inside the program, if there is one. A fault of the system (`Unavailable`) is always raised, never turned into
an answer.
"""

import copyreg
import errno
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from typedrag.core.redaction import without_keys


class TypedRAGError(Exception):
    """An input that typedrag refuses, or work that it cannot do; its message holds no keys.

    Args:
        problem: The fault, naming the input.
        hint: Advice to the user.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        problem = without_keys(problem)
        super().__init__(f"{problem.rstrip('.')}. {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:  # exceptions are pickled by their message, which is not what makes these
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class InputError(TypedRAGError):
    """A question, file, name or option that cannot be used as given."""


class StepFailed(TypedRAGError):
    """One step of a program, such as `decompose`, failed: a reply that cannot be read, or no LM calls left."""

    def __init__(self, step: str, problem: str) -> None:
        super().__init__(f"step '{step}' failed: {problem}")
        self.step = step
        self.problem = problem


class NotMeasurable(TypedRAGError):
    """A question lacks what a metric measures it by, such as reference answers."""


class Unavailable(TypedRAGError):
    """Something that typedrag needs cannot be used: a store, a hub, a dataset's home, a model."""


class StorageFull(Unavailable):
    """A disk is full or fails, or a quota is used up."""


class LMUnavailable(Unavailable):
    """The LM cannot be used: no model, no key, no server, or a server that fails."""


class CallFailed(LMUnavailable):
    """The LM failed, perhaps because of the question: it was too slow, sent no valid reply, or refused every call. In a
    run, the other questions are still asked."""


class RetrievalError(Unavailable):
    """An index or a reranker cannot be used: absent, half-built or unreadable."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The beginning of a hint: the name that is meant by one that there is not; empty if it resembles none.

    Example:
        >>> did_you_mean("lingage", ["linkage", "rouge"]), did_you_mean("x", ["linkage", "rouge"])
        ("Did you mean 'linkage'? ", '')
    """
    spelled = {n.casefold(): n for n in names}
    near = [spelled[match] for match in get_close_matches(name.casefold(), spelled, n=1)]
    return f"Did you mean '{near[0]}'? " if near and near[0] != name else ""


_MANY = 40  # more are no help to find one


def names_hint(label: str, name: str, names: Iterable[str]) -> str:
    """The hint where there is no such name: the one that is meant, if any resembles it, and all that there are, but for
    a long list that the one would drown in.

    Example:
        >>> names_hint("Metrics", "lingage", ["linkage", "rouge"])
        "Did you mean 'linkage'? Metrics: linkage, rouge"
    """
    known = list(names)
    meant = did_you_mean(name, known)
    if meant and len(known) > _MANY:
        return meant.strip()
    return f"{meant}{label}: {', '.join(known) or 'none'}"


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def path_error(place: object, error: OSError) -> TypedRAGError:
    """The error to raise if the system refuses a file or folder. A disk that is full or fails is a fault of the system;
    any other place can be exchanged for another."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StorageFull(f"{place}: {reason}", "Make room; what was done until then is kept")
    return InputError(f"{place}: {reason}", "Name another file or folder")


def first_line(error: Exception) -> str:
    """The first line of an error's message, without keys; else the error's name."""
    return without_keys(next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__))
