"""The makes of gates and their names: the grammar of the option `relevance`."""

from __future__ import annotations

from typing import NamedTuple

from typedrag.errors import InputError
from typedrag.retrieval.gate.gate import Gate
from typedrag.retrieval.gate.lm import CascadeGate, LMGate
from typedrag.retrieval.gate.without_lm import CrossEncoderGate, ScoreGate

FORMS = "none, score, cross-encoder[:NAME], lm, cascade[:FIRST], where FIRST is score or cross-encoder[:NAME]"

_BARE = ("none", "score", "cross-encoder", "lm", "cascade")
_FIRST = ("score", "cross-encoder")


class GateMake(NamedTuple):
    """A make of gates.

    Attributes:
        name: The part before the colon.
        argument: The part after the colon; may be empty.
        first: Of a cascade, the make that is asked about every passage.
    """

    name: str
    argument: str = ""
    first: GateMake | None = None

    @property
    def named_elsewhere(self) -> bool:
        """True if it loads a model that somebody has named."""
        return self.first.named_elsewhere if self.first else bool(self.argument)

    @property
    def brought(self) -> str:
        """A make with the same predictors that loads only models which typedrag brings."""
        if not self.named_elsewhere:
            return self.name
        return "cascade" if self.first else "score"


def gate_named(text: str) -> GateMake:
    """The make with this name.

    Raises:
        InputError: If there is none; the message lists the forms.

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


def build_gate(spec: str, threshold: float, *, passage_words: int, retries: int) -> Gate | None:
    """The gate that a spec names; None for `none`. Models are loaded at the first question.

    Args:
        spec: See `FORMS`.
        threshold: Passages whose probability is below it do not pass.
        passage_words: Words of a passage that an LM sees.
        retries: The number of times that an LM's reply which cannot be parsed is asked for again.

    Raises:
        InputError: If the spec has none of the forms.
    """
    make = gate_named(spec)
    lm = LMGate(threshold, passage_words, retries)
    match make.name:
        case "none":
            return None
        case "lm":
            return lm
        case "cascade" if make.first:
            return CascadeGate(_without_lm(make.first, threshold), lm)
        case _:
            return _without_lm(make, threshold)


def _without_lm(make: GateMake, threshold: float) -> Gate:
    return ScoreGate(threshold) if make.name == "score" else CrossEncoderGate(threshold, make.argument)
