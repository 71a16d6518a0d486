"""What users know by name: classes of ours, and of packages that declare them as entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from typedrag.errors import InputError

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """Classes by their attribute `name`, and those that installed packages declare.

    An entry point of the group `typedrag.KINDs` has a class as its object; it is loaded when a name is asked for
    that is not ours.

    Args:
        kind: What they are called, for messages.
        gone: Names that there were, with those to use instead.

    Example:
        >>> fruits: Registry[object] = Registry("fruit")
        >>> @fruits.add
        ... class Apple:
        ...     name = "apple"
        >>> fruits.names(), fruits.find("apple")
        (['apple'], <class 'typedrag.registry.Apple'>)
    """

    def __init__(self, kind: str, gone: Mapping[str, str] | None = None) -> None:
        self._kind = kind
        self._gone = gone or {}
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: C) -> C:
        """Class decorator: make a class known by its name."""
        self._classes[cls.name] = cls  # type: ignore[attr-defined]
        return cls

    def names(self) -> list[str]:
        """The names that `find` knows.

        Raises:
            InputError: If a package declares a name of ours, or one that another declares too.
        """
        return sorted({*self._classes, *self._declared()})

    def find(self, name: str) -> type[T]:
        """The class of this name.

        Raises:
            InputError: If there is none; the message lists those there are. If a package's cannot be loaded.
        """
        if name in self._classes:
            return self._classes[name]
        point = self._declared().get(name)
        if point is None and name in self._gone:
            raise InputError(f"the {self._kind} '{name}' is no more", f"Use '{self._gone[name]}'")
        if point is None:
            known = f"{self._kind.capitalize()}s: {', '.join(self.names())}"
            raise InputError(f"no {self._kind} is called '{name}'", known)
        found = loaded(point)
        if getattr(found, "name", None) != name:
            raise refused(point, f"its object is no class with the name '{name}'")
        return self._classes.setdefault(name, found)

    def _declared(self) -> dict[str, EntryPoint]:
        # the decorator may have added a stranger's class when its module was imported
        ours = [name for name, cls in self._classes.items() if cls.__module__.startswith("typedrag.")]
        return declared(f"{self._kind}s", ours)


def declared(kinds: str, ours: Iterable[str]) -> dict[str, EntryPoint]:
    """The entry points of the group `typedrag.KINDS`, by name, none of them loaded.

    Args:
        kinds: Such as `metrics`.
        ours: Names that are taken.

    Raises:
        InputError: If one is declared twice, or is ours: a stranger's code never comes in the place of other.
    """
    found: dict[str, EntryPoint] = {}
    taken = dict.fromkeys(ours, "typedrag")
    for point in entry_points(group=f"typedrag.{kinds}"):
        if point.name in taken and taken[point.name] != _package(point):
            raise refused(point, f"{taken[point.name]} has that name already")
        found[point.name], taken[point.name] = point, _package(point)
    return found


def loaded(point: EntryPoint) -> Any:
    """The object of an entry point.

    Raises:
        InputError: If it cannot be loaded, naming package and cause.
    """
    try:
        return point.load()
    except Exception as error:  # a stranger's module may raise anything
        raise refused(point, f"it cannot be loaded: {type(error).__name__}: {error}") from error


def refused(point: EntryPoint, why: str) -> InputError:
    """The error that an entry point cannot be used, naming its package."""
    where = f"package '{_package(point)}' declares '{point.name}' in {point.group} as {point.value}"
    return InputError(f"{where}, but {why}", f"Mend or uninstall {_package(point)}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


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
