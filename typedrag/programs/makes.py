"""What the makes of type classifiers are called: the grammar of the option `type_classifier`."""

from __future__ import annotations

from typing import NamedTuple

from typedrag.errors import InputError

FORMS = "linear, embedding, linear+embedding, hub:NAME, lm, cascade[:FIRST,SECOND]"

_BARE = ("linear", "embedding", "linear+embedding", "lm", "cascade")
_WITH_ARGUMENT = ("hub", "cascade")
_REMOVED = ("lm-neighbours", "lm-calibrated")
"""Makes that were, and that the table of docs/type-classifiers.md rejected."""


class Make(NamedTuple):
    """A make of type classifiers.

    Attributes:
        name: What comes before the colon.
        argument: What comes after it; empty if nothing does.
        members: Of a cascade: the one that is asked first, and the one that is asked where it is unsure.
    """

    name: str
    argument: str = ""
    members: tuple[Make, ...] = ()

    @property
    def asks_lm(self) -> bool:
        """Whether it asks an LM, of all questions or of some."""
        return self.name == "lm" or any(member.asks_lm for member in self.members)

    @property
    def named_elsewhere(self) -> bool:
        """Whether it loads a model of the hub, which typedrag does not bring."""
        return any(member.named_elsewhere for member in self.members) if self.members else bool(self.argument)

    @property
    def brought(self) -> str:
        """A make with the same predictors that loads nothing but what typedrag brings."""
        if self.members:
            return f"cascade:{','.join(member.brought for member in self.members)}"
        if not self.argument:
            return self.name
        return "linear"


def make_named(text: str) -> Make:
    """The make of this name.

    Raises:
        InputError: If there is none; the message lists the forms there are.

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
