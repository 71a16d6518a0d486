"""The sub-questions that an answer has to cover, mostly the core ones (sub-question coverage, section 3.1)."""

from __future__ import annotations

import dspy

from typedrag.errors import StepFailed
from typedrag.programs.options import Options
from typedrag.programs.sub_queries import is_copied, prompt_of
from typedrag.question_types import SubQuestionType
from typedrag.records import SubQuestion
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper


class CoreSubQuestions(dspy.Module):
    """sub-questions, about 20 ─► typed ─► those that are core

    Args:
        options: The program's options.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.decomposer = SubQuestionDecomposer(options.retries)
        self.typer = SubQuestionTyper(options.retries, options.types_per_call)

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with the core `sub_questions`, at most `max_core_sub_questions`, in the LM's order.

        Raises:
            StepFailed: If no reply can be parsed, or no sub-question is core.
            LMUnavailable: If the LM cannot be used.
        """
        core = [q.text for q in self.typed(question) if q.type is SubQuestionType.CORE]
        if not core:
            raise StepFailed("decompose", "no sub-question is core")
        return dspy.Prediction(sub_questions=core[: self.options.max_core_sub_questions])

    def weighted(self, question: str) -> dict[str, float]:
        """The sub-questions of the types that have a weight, at most `max_core_sub_questions` of each type.

        Returns:
            Each with its weight: that of its type, shared among those of the type. So the weights of the sub-questions
            that a text covers sum to its rating (section 4).

        Raises:
            StepFailed: If no reply can be parsed, or no sub-question is worth covering.
            LMUnavailable: If the LM cannot be used.
        """
        of_type: dict[SubQuestionType, list[str]] = {}
        for sub_question in self.typed(question):
            of_type.setdefault(sub_question.type, []).append(sub_question.text)
        weights, most = self.options.coverage_weights, self.options.max_core_sub_questions
        if not any(weights.of(type_) > 0 for type_ in of_type):
            worth = " or ".join(type_.value for type_ in SubQuestionType if weights.of(type_) > 0)
            raise StepFailed("decompose", f"no sub-question is {worth or 'worth covering'}")
        return {
            text: weights.of(type_) / len(texts[:most])
            for type_, texts in of_type.items()
            if weights.of(type_)
            for text in texts[:most]
        }

    def typed(self, question: str) -> list[SubQuestion]:
        """All sub-questions with their types, in the LM's order.

        Raises:
            StepFailed: If no reply can be parsed, or no sub-question is usable.
            LMUnavailable: If the LM cannot be used.
        """
        prompt = prompt_of(self.decomposer.decompose, question)
        written = [q for q in self.decomposer(question=question).sub_questions if not is_copied(q, prompt)]
        if not written:
            raise StepFailed("decompose", "no usable sub-question came out")
        types = self.typer(question=question, sub_questions=written).types
        return [SubQuestion(text, type_) for text, type_ in zip(written, types, strict=True)]
