"""The answer that a dataset has, as a program: what people's own answers reach by the same metrics."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.call_context import call_context
from typedrag.errors import InputError
from typedrag.programs.program import Program, program


@program
class ReferenceAnswer(Program):
    """question ─► the dataset's own answer: the better of two that people compared, or the best reference

    No LM is asked. It answers questions of an evaluation alone.
    """

    name: ClassVar[str] = "reference"
    reads = frozenset({"max_question_chars"})
    retrieves: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = True

    def respond(self, question: str) -> dspy.Prediction:
        """The dataset's answer.

        Raises:
            InputError: If the dataset has none for this question.
        """
        if answers := call_context().labels.get("answers_compared"):
            return dspy.Prediction(answer=answers[0 if call_context().labels["preference"] > 0 else 1])
        if references := call_context().labels.get("references"):
            return dspy.Prediction(answer=references[0].text)
        raise InputError("the question has no answer of its own", "Evaluate 'reference' on a dataset that has answers")
