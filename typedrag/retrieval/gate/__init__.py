"""What stands between retrieval and answer: is a passage of use for the question? One interface, several makes.

The option `relevance` says which one a program uses; see `typedrag.retrieval.gate.makes`.
"""

from typedrag.retrieval.gate.makes import build_gate, gate_named

__all__ = ["build_gate", "gate_named"]
