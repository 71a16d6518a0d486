"""The executor of a run, and the one that works in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import dspy

from typedrag.call_context import use_context
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.metrics import Metric
from typedrag.programs import Program
from typedrag.question_types import QuestionType
from typedrag.records import Answer


class Executor(Protocol):
    """Answers questions and measures answers; called from many threads, each within its `charging`.

    Errors are those of programs and metrics, wherever they run.
    """

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """The answer to an example's question, asked within its `labelled`, as of a type if the asker says it."""
        ...

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """The result of a metric on an answer."""
        ...


@dataclass(frozen=True)
class Here:
    """The executor `local`: this process, within the caller's `use_lm`; without a program it only measures."""

    program: Program | None
    metrics: Mapping[str, Metric]

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """See `Executor`."""
        assert self.program, "all questions are answered"
        with use_context(labels=example.toDict()):
            return Answer.from_prediction(self.program(question=example.question, question_type=question_type))

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """See `Executor`."""
        return MetricResult(**self.metrics[metric](example, answer.to_prediction()))
