"""The base of programs that answer by the amount of retrieval a question takes."""

from __future__ import annotations

import dspy

from typedrag.errors import StepFailed
from typedrag.events import Classified, emit
from typedrag.lms.trace import record_fallback
from typedrag.programs.answering import NotAnswered
from typedrag.programs.program import Program
from typedrag.question_types import Route


class RoutedProgram(Program):
    """Names a question's route, then answers its way; a question whose route cannot be read is a single step."""

    def route(self, question: str) -> Route:
        """The amount of retrieval that the question takes.

        Raises:
            StepFailed: If the reply cannot be read.
        """
        raise NotImplementedError

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """The answer, found the way of the route; see `Program.respond`."""
        raise NotImplementedError

    def respond(self, question: str) -> dspy.Prediction:
        """Route, then answer the way of the route."""
        try:
            route = self.route(question)
        except StepFailed as failure:
            route = Route.SINGLE_STEP
            record_fallback(failure, f"taken as {route}")
        emit(Classified, route=str(route))
        try:
            answer = self.by_route(question, route)
        except NotAnswered as failure:
            answer = self.not_answered(question, failure)
        return dspy.Prediction(**{**answer.toDict(), "route": str(route)})
