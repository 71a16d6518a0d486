"""Several things of a kind in one call, by their keys, such as q1 and q2: the reply has exactly one value for each.

A small LM that must name the key before each value keeps to the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import dspy

from typedrag.signatures.fields import one_for_each

T = TypeVar("T")


def keyed(values: Iterable[T], letter: str = "q") -> dict[str, T]:
    """Values by their keys.

    Example:
        >>> keyed(["What is yeast?", "Why does dough rise?"])
        {'q1': 'What is yeast?', 'q2': 'Why does dough rise?'}
    """
    return {f"{letter}{number}": value for number, value in enumerate(values, 1)}


def exactly(signature: type[dspy.Signature], keys: Iterable[str], value: Any = None) -> type[dspy.Signature]:
    """A signature like this one whose output is one value for each of the keys, no more and no fewer.

    Args:
        signature: Its one output is a dictionary.
        keys: Of what it is asked about.
        value: The type of a value; by default that of the signature.

    Example:
        >>> grades = dspy.Signature("answers: dict[str, str] -> grades: dict[str, int]")
        >>> list(exactly(grades, keyed(["Yeast.", "Gas."], "a")).output_fields["grades"].annotation.model_fields)
        ['a1', 'a2']
    """
    ((name, field),) = signature.output_fields.items()
    (_, usual) = field.annotation.__args__
    return signature.with_updated_fields(name, type_=one_for_each(tuple(keys), value or usual))


def values(output: Any) -> list[Any]:
    """The values of such an output, in the order of the keys."""
    return list((output if isinstance(output, Mapping) else dict(output)).values())
