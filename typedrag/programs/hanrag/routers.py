"""Routers: modules that choose the route of a question.

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with `route`.
"""

from __future__ import annotations

import re

import dspy

from typedrag.lms.trace import add_step
from typedrag.programs.hanrag.revelator import RevelatorModule
from typedrag.programs.options import Options
from typedrag.question_types import RevelatorRole, Route
from typedrag.records import Step

_ASKING = "what|when|where|who|whom|whose|which|why|how"
_ASKS_AGAIN = re.compile(rf"(?:[?;,]\s*(?:and\s+)?|\band\s+)(?:(?:in|at|on|for|from|by|with|of)\s+)?(?:{_ASKING})\b")
_LINKED = re.compile(r"\b(?:of|that|who|whose|which|where|by)\b|[’']s\b")
_LINKS = 2


class RuleRouter(dspy.Module):
    """Routes by the wording of a question, without an LM: the baseline that the revelator has to beat.

    A question with a second question word after a comma or an `and` is compound; one whose subject is
    described by another subject, and that by a third, is complex; any other takes a single step.

    Example:
        >>> router = RuleRouter()
        >>> str(router(question="When was the tower built, and who designed it?").route)
        'compound'
        >>> str(router(question="Who is the mother of the director of Jaws?").route)
        'complex'
    """

    def forward(self, question: str) -> dspy.Prediction:
        """The route."""
        rest = re.sub(rf"^\W*(?:{_ASKING})\b", "", question.lower())
        if _ASKS_AGAIN.search(rest):
            route = Route.COMPOUND
        elif len(_LINKED.findall(rest)) >= _LINKS:
            route = Route.COMPLEX
        else:
            route = Route.SINGLE_STEP
        return _routed(question, route)


class FixedRouter(dspy.Module):
    """Gives every question the same route."""

    def __init__(self, route: Route) -> None:
        super().__init__()
        self.route = route

    def forward(self, question: str) -> dspy.Prediction:
        """The route."""
        return _routed(question, self.route)


def build_router(options: Options) -> dspy.Module:
    """The router that the options name."""
    router = options.hanrag.router
    if isinstance(router, Route):
        return FixedRouter(router)
    return RuleRouter() if router == "rule" else RevelatorModule(RevelatorRole.ROUTER, options)


def _routed(question: str, route: Route) -> dspy.Prediction:
    add_step(Step("classify", question, str(route)))
    return dspy.Prediction(route=route)
