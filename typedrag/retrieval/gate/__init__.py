"""What stands between retrieval and answer: is a passage of use for the question? One interface, several makes.

The option `relevance` says which one a program uses; see `typedrag.retrieval.gate.makes`.
"""

from __future__ import annotations

from typedrag.retrieval.gate.cascade import CascadeGate
from typedrag.retrieval.gate.cross_encoder import CrossEncoderGate
from typedrag.retrieval.gate.gate import Gate, ProbabilityGate
from typedrag.retrieval.gate.lm import LMGate
from typedrag.retrieval.gate.makes import GateMake, gate_named
from typedrag.retrieval.gate.score import ScoreGate

__all__ = [
    "CascadeGate",
    "CrossEncoderGate",
    "Gate",
    "GateMake",
    "LMGate",
    "ProbabilityGate",
    "ScoreGate",
    "build_gate",
    "gate_named",
]


def build_gate(spec: str, threshold: float, *, passage_words: int, retries: int) -> Gate | None:
    """The gate that a spec names; None for `none`. Models are loaded at the first question.

    Args:
        spec: See `makes.FORMS`.
        threshold: Passages whose probability is below it do not pass.
        passage_words: Of a passage that an LM gets to see.
        retries: How often an LM's reply that cannot be parsed is asked for again.

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


def _without_lm(make: GateMake, threshold: float) -> ProbabilityGate:
    return ScoreGate(threshold) if make.name == "score" else CrossEncoderGate(threshold, make.argument)
