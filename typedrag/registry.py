"""Classes that users know by name."""

from __future__ import annotations

from typing import Generic, TypeVar

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
