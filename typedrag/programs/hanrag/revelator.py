"""HANRAG's revelator: one agent in five roles (HANRAG, section 4.1), which may have its own LM."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import dspy

from typedrag.lms.asking import ask
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.trace import add_step
from typedrag.programs.options import Options
from typedrag.question_types import RevelatorRole
from typedrag.records import Step
from typedrag.signatures import (
    DecomposeCompound,
    JudgeEnding,
    JudgeRelevance,
    RefineQuestion,
    RouteQuestion,
    predictor,
)

REVELATOR_SIGNATURES: Mapping[RevelatorRole, type[dspy.Signature]] = {
    RevelatorRole.ROUTER: RouteQuestion,
    RevelatorRole.DECOMPOSER: DecomposeCompound,
    RevelatorRole.REFINER: RefineQuestion,
    RevelatorRole.RELEVANCE: JudgeRelevance,
    RevelatorRole.ENDING: JudgeEnding,
}
"""The signature of each role; each has one output."""

_STEPS = {
    RevelatorRole.ROUTER: "classify",
    RevelatorRole.DECOMPOSER: "decompose",
    RevelatorRole.REFINER: "refine",
    RevelatorRole.RELEVANCE: "relevance",
    RevelatorRole.ENDING: "ending",
}


class RevelatorModule(dspy.Module):
    """One role of the revelator: asks its LM and records the step.

    Args:
        role: The role.
        options: The program's options.
    """

    def __init__(self, role: RevelatorRole, options: Options) -> None:
        super().__init__()
        self.role = role
        self.predict = predictor(REVELATOR_SIGNATURES[role])
        self._retries = options.retries
        self._spec = options.hanrag.revelator_lm

    @property
    def output(self) -> str:
        """The name of its signature's output."""
        ((name, _),) = self.predict.signature.output_fields.items()
        return str(name)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """The prediction of the role's signature.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
        """
        step, question = _STEPS[self.role], str(inputs["question"])
        with self._own_lm():
            reply = ask(step, self.predict, retries=self._retries, **inputs)
        add_step(
            Step(step, question, _in_words(reply.prediction[self.output]), seconds=reply.seconds, usage=reply.usage)
        )
        return reply.prediction

    def _own_lm(self) -> AbstractContextManager[None]:
        return use_lm(_opened(self._spec)) if self._spec else nullcontext()


@cache
def _opened(spec: str) -> dspy.LM:
    return track_calls(open_lm(spec))


def _in_words(output: Any) -> str:
    value = getattr(output, "root", output)
    return "; ".join(value) if isinstance(value, list) else str(value)
