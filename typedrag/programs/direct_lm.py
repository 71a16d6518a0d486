"""The baseline that asks the LM alone (Typed-RAG, figure 8)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.programs.program import ASKING, Program, program


@program
class DirectLM(Program):
    """question ─► answer"""

    name: ClassVar[str] = "direct_lm"
    reads = ASKING
    retrieves: ClassVar[bool] = False

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the LM's own knowledge."""
        return self.answer_from_lm(question)
