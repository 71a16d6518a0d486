"""Registries of the classes that users name: ours, and those that packages declare as entry points."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Generic, TypeVar

from typedrag.core.errors import InputError

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Classes by their attribute `name`, and those that installed packages declare.

    An entry point of the group `typedrag.KINDs` has a class as its object; it is loaded when its name is looked up
    and is not one of ours.

    Args:
        kind: The kind of the classes, for messages.
        gone: Former names, with those to use instead.

    Example:
        >>> fruits: Registry[object] = Registry("fruit")
        >>> @fruits.add
        ... class Apple:
        ...     name = "apple"
        >>> fruits.names(), fruits.find("apple")
        (['apple'], <class 'typedrag.core.registry.Apple'>)
    """

    def __init__(self, kind: str, gone: Mapping[str, str] | None = None) -> None:
        self._kind = kind
        self._gone = gone or {}
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: C) -> C:
        """Class decorator: register a class by its name."""
        self._classes[cls.name] = cls  # type: ignore[attr-defined]
        return cls

    def names(self) -> list[str]:
        """The names that `find` knows."""
        return sorted({*self._classes, *self._declared()})

    def find(self, name: str) -> type[T]:
        """The class of this name."""
        if name in self._classes:
            return self._classes[name]
        point = self._declared().get(name)
        if point is None and name in self._gone:
            raise InputError(f"the {self._kind} '{name}' is no more", f"Use '{self._gone[name]}'")
        if point is None:
            known = f"{self._kind.capitalize()}s: {', '.join(self.names())}"
            raise InputError(f"no {self._kind} is called '{name}'", known)
        cls = loaded(point)
        if getattr(cls, "name", None) != name:
            raise refused(point, f"its object is no class with the name '{name}'")
        return self._classes.setdefault(name, cls)

    def _declared(self) -> dict[str, EntryPoint]:
        # a stranger's class may be registered already, by the decorator, when its module was imported
        ours = [name for name, cls in self._classes.items() if cls.__module__.startswith("typedrag.")]
        return declared(f"{self._kind}s", ours)


def declared(kinds: str, ours: Iterable[str]) -> dict[str, EntryPoint]:
    """The entry points of the group `typedrag.KINDS`, by name, none of them loaded.

    Args:
        kinds: The group's last word, such as `metrics`.
        ours: Names that are taken.
    """
    points: dict[str, EntryPoint] = {}
    owners = dict.fromkeys(ours, "typedrag")
    for point in _entry_points(f"typedrag.{kinds}", tuple(sys.path)):
        if point.name in owners and owners[point.name] != _package(point):
            raise refused(point, f"{owners[point.name]} has that name already")
        points[point.name], owners[point.name] = point, _package(point)
    return points


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group; reading those of all packages takes 20 ms, and specs are parsed often."""
    return entry_points(group=group)


def loaded(point: EntryPoint) -> Any:
    """The object of an entry point."""
    try:
        return point.load()
    except Exception as error:  # a stranger's module may raise anything
        raise refused(point, f"it cannot be loaded: {type(error).__name__}: {error}") from error


def refused(point: EntryPoint, why: str) -> InputError:
    """The error for an entry point that cannot be used; it names the package."""
    where = f"package '{_package(point)}' declares '{point.name}' in {point.group} as {point.value}"
    return InputError(f"{where}, but {why}", f"Mend or uninstall {_package(point)}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def check_options(what: str, call: Callable[..., Any], options: Iterable[str], besides: Iterable[str] = ()) -> None:
    """Refuse options that a function or class does not take.

    Args:
        what: Its name, for messages.
        call: The function or class; its parameters are the options.
        options: The names that a user gave.
        besides: Parameters that are no options.
    """
    known = [name for name in inspect.signature(call).parameters if name not in besides]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"{what} has no option '{unknown[0]}'", f"Its options: {', '.join(known) or 'none'}")
