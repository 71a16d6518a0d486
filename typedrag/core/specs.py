"""The texts by which users name what is opened, such as `cross-encoder:NAME`: one grammar for all of them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.registry import declared, loaded

_FORM = re.compile(r"(?P<kind>.+?)(?P<argument>\[:.+\]|:[A-Z.]+)?")


class Spec(NamedTuple):
    """A kind, and what follows its colon: mostly the name of a model, which may be anybody's."""

    kind: str
    argument: str = ""


class SpecGrammar:
    """The specs that name things of one sort.

    Args:
        noun: The sort, for messages.
        forms: Each `KIND`, `KIND:ARGUMENT` or `KIND[:ARGUMENT]`, where ARGUMENT is in capitals. A kind may have colons.
        group: Installed packages add kinds, each with an optional argument, as entry points of `typedrag.GROUP`.

    Example:
        >>> filters = SpecGrammar("filter", "none", "nli:NAME", "cascade", "cascade:nli[:NAME]")
        >>> filters.parse("cascade"), filters.parse("cascade:nli:a/b:c")
        (Spec(kind='cascade', argument=''), Spec(kind='cascade:nli', argument='a/b:c'))
        >>> filters.parse("nli")
        Traceback (most recent call last):
        typedrag.core.errors.InputError: 'nli' is no filter. Write one of: none, nli:NAME, cascade, cascade:nli[:NAME]
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
        """The spec that a text writes."""
        for kind, argument in sorted(self._kinds().items(), reverse=True):  # the longer kind first
            if text == kind and not argument.startswith(":"):
                return Spec(kind)
            if argument and text.startswith(f"{kind}:") and text != f"{kind}:":
                return Spec(kind, text.removeprefix(f"{kind}:"))
        raise InputError(f"'{text}' is no {self._noun}", f"Write one of: {self.forms}")

    def from_package(self, spec: Spec) -> Any | None:
        """The object of the entry point that declares a spec's kind; None if the kind is one of typedrag's own."""
        return None if spec.kind in self._arguments else loaded(declared(self._group, self._arguments)[spec.kind])

    def _kinds(self) -> dict[str, str]:
        theirs = declared(self._group, self._arguments) if self._group else ()
        return {**self._arguments, **dict.fromkeys(theirs, "[:…]")}
