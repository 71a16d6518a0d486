"""The names of type classifiers: the grammar of the option `type_classifier`."""

from __future__ import annotations

from typing import NamedTuple

from typedrag.errors import InputError

FORMS = "linear, embedding, linear+embedding, hub:NAME, lm, cascade[:FIRST,SECOND]"

_BARE = ("linear", "embedding", "linear+embedding", "lm", "cascade")
_WITH_ARGUMENT = ("hub", "cascade")
_REMOVED = ("lm-neighbours", "lm-calibrated")
"""Makes that were, and that the table of docs/type-classifiers.md rejected."""


class Make(NamedTuple):
    """A kind of type classifier, as its name tells.

    Attributes:
        name: The part before the colon.
        argument: The part after the colon; empty if there is none.
        members: Of a cascade: the classifier asked first, and the one asked if the first is unsure.
    """

    name: str
    argument: str = ""
    members: tuple[Make, ...] = ()

    @property
    def asks_lm(self) -> bool:
        """True if it asks an LM, for all questions or for some."""
        return self.name == "lm" or any(member.asks_lm for member in self.members)

    @property
    def named_elsewhere(self) -> bool:
        """True if it loads a model of the Hugging Face hub, which typedrag does not ship."""
        return any(member.named_elsewhere for member in self.members) if self.members else bool(self.argument)

    @property
    def brought(self) -> str:
        """The name of a classifier with the same predictors that loads only models shipped with typedrag."""
        if self.members:
            return f"cascade:{','.join(member.brought for member in self.members)}"
        if not self.argument:
            return self.name
        return "linear"


def make_named(text: str) -> Make:
    """The make of this name.

    Raises:
        InputError: If there is none; the message lists the valid forms.

    Example:
        >>> make_named("hub:Lurunchik/nf-cats")
        Make(name='hub', argument='Lurunchik/nf-cats', members=())
        >>> [member.name for member in make_named("cascade").members]
        ['linear', 'lm']
    """
    name, colon, argument = text.partition(":")
    if name in _REMOVED:
        raise InputError(
            f"the type classifier '{name}' is no more: it did worse than 'linear'", f"Write one of: {FORMS}"
        )
    if not (name in _WITH_ARGUMENT and argument if colon else name in _BARE):
        raise InputError(f"'{text}' is no type classifier", f"Write one of: {FORMS}")
    return Make(name, argument, _members(text, argument or "linear,lm") if name == "cascade" else ())


def _members(text: str, argument: str) -> tuple[Make, ...]:
    first, comma, second = argument.partition(",")
    if not comma:
        raise InputError(f"'{text}' names one type classifier, not two", "Write cascade:FIRST,SECOND")
    members = make_named(first), make_named(second)
    if any(member.name == "cascade" for member in members):
        raise InputError(f"'{text}' is a cascade of a cascade", f"Name two others of: {FORMS}")
    return members
