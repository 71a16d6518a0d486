"""The things that users name: classes of a registry, specs `KIND:ARGUMENT` to be opened, and packages' entry points."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, NamedTuple, Self, TypeVar

from typedrag.core.errors import InputError, did_you_mean, names_hint

T = TypeVar("T")
C = TypeVar("C", bound=type)
_FORM = re.compile(r"(?P<kind>.+?)(?P<argument>\[:.+\]|:[A-Z.]+)?")


class Registry(Generic[T]):
    """Classes of a kind by their attribute `name`, and those that installed packages declare: an entry point of the
    group `typedrag.KINDs` is loaded when its name is looked up and is not one of ours."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._classes: dict[str, type[T]] = {}

    def add(self, cls: C) -> C:
        """Class decorator: register a class by its name."""
        self._classes[cls.name] = cls  # type: ignore[attr-defined]
        return cls

    def names(self) -> list[str]:
        return sorted({*self._classes, *self._declared()})

    def find(self, name: str) -> type[T]:
        if name in self._classes:
            return self._classes[name]
        point = self._declared().get(name)
        if point is None:
            hint = names_hint(f"{self._kind.capitalize()}s", name, self.names())
            raise InputError(f"no {self._kind} is called '{name}'", hint)
        cls = load_entry_point(point)
        if getattr(cls, "name", None) != name:
            raise entry_point_error(point, f"its object is no class with the name '{name}'")
        return self._classes.setdefault(name, cls)

    def _declared(self) -> dict[str, EntryPoint]:
        # a stranger's class may be registered already, by the decorator, when its module was imported
        ours = [name for name, cls in self._classes.items() if cls.__module__.startswith("typedrag.")]
        return find_entry_points(f"{self._kind}s", ours)


class Spec(NamedTuple):
    """A kind, and what follows its colon: mostly the name of a model, which may be anybody's."""

    kind: str
    argument: str = ""


class SpecGrammar:
    """The specs that name things of one sort, which messages call by `noun`.

    A form is `KIND`, `KIND:ARGUMENT` or `KIND[:ARGUMENT]`, where ARGUMENT is in capitals; a kind may have colons.
    Installed packages add kinds, each with an optional argument, as entry points of `typedrag.GROUP`.
    """

    def __init__(self, noun: str, *forms: str, group: str = "") -> None:
        self._noun, self._group = noun, group
        matches = [match for form in forms if (match := _FORM.fullmatch(form))]
        self._arguments = {match["kind"]: match["argument"] or "" for match in matches}

    @property
    def forms(self) -> str:
        """All forms, those of installed packages too, with commas between."""
        return ", ".join(f"{kind}{argument}" for kind, argument in self._kinds().items())

    def parse(self, text: str) -> Spec:
        for kind, argument in sorted(self._kinds().items(), reverse=True):  # the longer kind first
            if text == kind and not argument.startswith(":"):
                return Spec(kind)
            if argument and text.startswith(f"{kind}:") and text != f"{kind}:":
                return Spec(kind, text.removeprefix(f"{kind}:"))
        meant = did_you_mean(text.partition(":")[0], self._kinds())
        raise InputError(f"'{text}' is no {self._noun}", f"{meant}Write one of: {self.forms}")

    def from_package(self, spec: Spec) -> Any | None:
        """The object of the entry point that declares a spec's kind; None if the kind is one of typedrag's own."""
        if spec.kind in self._arguments:
            return None
        return load_entry_point(find_entry_points(self._group, self._arguments)[spec.kind])

    def _kinds(self) -> dict[str, str]:
        theirs = find_entry_points(self._group, self._arguments) if self._group else ()
        return {**self._arguments, **dict.fromkeys(theirs, "[:…]")}


def find_entry_points(kinds: str, ours: Iterable[str]) -> dict[str, EntryPoint]:
    """The entry points of the group `typedrag.KINDS`, by name, none of them loaded; names that are ours are taken."""
    points: dict[str, EntryPoint] = {}
    owners = dict.fromkeys(ours, "typedrag")
    for point in _read_entry_points(tuple(sys.path)).select(group=f"typedrag.{kinds}"):
        if point.name in owners and owners[point.name] != _package(point):
            raise entry_point_error(point, f"{owners[point.name]} has that name already")
        points[point.name], owners[point.name] = point, _package(point)
    return points


@cache  # reading the entry points of all packages takes 20 ms, and specs are parsed often
def _read_entry_points(path: tuple[str, ...]) -> Any:
    return entry_points()  # an `EntryPoints`, in Python 3.11 a class of its own


def load_entry_point(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # a stranger's module may raise anything
        raise entry_point_error(point, f"it cannot be loaded: {type(error).__name__}: {error}") from error


def entry_point_error(point: EntryPoint, why: str) -> InputError:
    where = f"package '{_package(point)}' declares '{point.name}' in {point.group} as {point.value}"
    return InputError(f"{where}, but {why}", f"Fix or uninstall {_package(point)}")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def check_options(what: str, call: Callable[..., Any], options: Iterable[str], besides: Iterable[str] = ()) -> None:
    """Refuse options that are no parameters of a function or class, or are `besides` its options."""
    known = [name for name in inspect.signature(call).parameters if name not in besides]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"{what} has no option '{unknown[0]}'", names_hint("Its options", unknown[0], known))


class NoDeepcopy:
    """A connection, an open index, a loaded model or the like: copies of what holds one share it, as optimizers copy
    programs and LMs."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        problem = f"a {type(self).__name__}, and a program that holds one, cannot be pickled"
        raise TypeError(f"{problem}: write it by program.save(FILE.json), and read it by program.load(FILE.json)")
