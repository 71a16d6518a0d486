"""The type classifier of an experiment that asks what right types are worth."""

from __future__ import annotations

import dspy

from typedrag.call_context import call_context
from typedrag.errors import InputError
from typedrag.programs.typed_rag.type_classifiers.classifying import classified
from typedrag.question_types import question_type_named


class OracleTypeClassifier(dspy.Module):
    """Names the type that a question's dataset labels."""

    def forward(self, question: str) -> dspy.Prediction:
        """The type.

        Raises:
            InputError: If the question has no label.
        """
        if not (labelled := call_context().labels.get("question_type")):
            raise InputError(
                "the type classifier is an oracle, but the question has no labelled type",
                "Evaluate it on a dataset with a field question_type",
            )
        return classified(question, question_type_named(labelled), by="the dataset")
