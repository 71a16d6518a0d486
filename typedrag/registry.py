"""Classes that users know by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from typedrag.errors import InputError

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Classes by their attribute `name`.

    Args:
        kind: What they are called, for messages.

    Example:
        >>> fruits: Registry[object] = Registry("fruit")
        >>> @fruits.add
        ... class Apple:
        ...     name = "apple"
        >>> fruits.names(), fruits.find("apple")
        (['apple'], <class 'typedrag.registry.Apple'>)
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: C) -> C:
        """Class decorator: make a class known by its name."""
        self._classes[cls.name] = cls  # type: ignore[attr-defined]
        return cls

    def names(self) -> list[str]:
        """The names that `find` knows."""
        return sorted(self._classes)

    def find(self, name: str) -> type[T]:
        """The class of this name.

        Raises:
            InputError: If there is none; the message lists those there are.
        """
        if name not in self._classes:
            known = f"{self._kind.capitalize()}s: {', '.join(self.names())}"
            raise InputError(f"no {self._kind} is called '{name}'", known)
        return self._classes[name]


def check_options(what: str, call: Callable[..., Any], options: Iterable[str], besides: Iterable[str] = ()) -> None:
    """Refuse options that a function or class does not take.

    Args:
        what: Names it, for messages.
        call: Its parameters are the options.
        options: Names that a user gave.
        besides: Parameters that are no options.

    Raises:
        InputError: If it does not take one; the message lists those it takes.
    """
    known = [name for name in inspect.signature(call).parameters if name not in besides]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"{what} has no option '{unknown[0]}'", f"Its options: {', '.join(known) or 'none'}")
