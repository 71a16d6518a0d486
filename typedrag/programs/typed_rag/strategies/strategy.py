"""The base of the strategies of question types."""

from __future__ import annotations

import dspy

from typedrag.programs.retrieving import Retrieving


class Strategy(Retrieving):
    """Answers questions of one type."""

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question.

        Returns:
            A prediction with `answer`, `passages`, `citations` and, if not from passages, `answered`.

        Raises:
            NotAnswered: If the collection does not say.
            StepFailed: If a step fails that the strategy cannot do without.
            LMUnavailable: If the LM cannot be used.
            RetrievalError: If the index or the reranker cannot be used.
        """
        raise NotImplementedError
