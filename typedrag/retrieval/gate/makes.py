"""What the makes of gates are called: the grammar of the option `relevance`."""

from __future__ import annotations

from typing import NamedTuple

from typedrag.errors import InputError

FORMS = "none, score, cross-encoder[:NAME], lm, cascade[:FIRST], where FIRST is score or cross-encoder[:NAME]"

_BARE = ("none", "score", "cross-encoder", "lm", "cascade")
_FIRST = ("score", "cross-encoder")


class GateMake(NamedTuple):
    """A make of gates.

    Attributes:
        name: What comes before the colon.
        argument: What comes after it; empty if nothing does.
        first: Of a cascade: the make that is asked about every passage.
    """

    name: str
    argument: str = ""
    first: GateMake | None = None

    @property
    def named_elsewhere(self) -> bool:
        """Whether it loads a model that somebody has named."""
        return self.first.named_elsewhere if self.first else bool(self.argument)

    @property
    def brought(self) -> str:
        """A make with the same predictors that loads nothing but what typedrag brings."""
        if not self.named_elsewhere:
            return self.name
        return "cascade" if self.first else "score"


def gate_named(text: str) -> GateMake:
    """The make of this name.

    Raises:
        InputError: If there is none; the message lists the forms there are.

    Example:
        >>> gate_named("cross-encoder:BAAI/bge-reranker-base")
        GateMake(name='cross-encoder', argument='BAAI/bge-reranker-base', first=None)
        >>> gate_named("cascade").first
        GateMake(name='score', argument='', first=None)
    """
    name, colon, argument = text.partition(":")
    if not (name in ("cross-encoder", "cascade") and argument if colon else name in _BARE):
        raise InputError(f"'{text}' is no gate", f"Write one of: {FORMS}")
    if name != "cascade":
        return GateMake(name, argument)
    first = gate_named(argument or "score")
    if first.name not in _FIRST:
        raise InputError(f"'{text}' begins with '{argument}'", f"A cascade begins with {' or '.join(_FIRST)}")
    return GateMake(name, argument, first)
