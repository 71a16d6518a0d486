"""Running programs over many questions."""

from typedrag.experiments.batch import AskedQuestion, Outcome, answer_questions, read_questions

__all__ = ["AskedQuestion", "Outcome", "answer_questions", "read_questions"]
