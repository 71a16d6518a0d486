"""Gates, which drop passages of no use between retrieval and answer: one interface, several makes.

The option `relevance` says which make a program uses; see `typedrag.retrieval.gate.makes`.
"""

from typedrag.retrieval.gate.makes import build_gate, gate_named

__all__ = ["build_gate", "gate_named"]
