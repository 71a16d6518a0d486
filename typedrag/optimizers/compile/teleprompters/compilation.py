"""A compile that is under way, as an optimizer gets to see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dspy

from typedrag.optimizers.compile.teleprompters.budget import Gate
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, Trajectory
from typedrag.optimizers.compile.teleprompters.optimizer import CompileRequest
from typedrag.optimizers.compile.teleprompters.scoring import Scoring

_LEAST_THRESHOLD = 0.001
"""DSPy takes a threshold of 0 for none, and a metric's prediction for success whatever its score."""


@dataclass(frozen=True, kw_only=True)
class Compilation(CompileRequest):
    """A request as an optimizer gets to see it, within the LMs, the gate and the cache of the compile.

    Its examples are those that are used, in turn from each question type; the base has been evaluated on its
    validation set. All its LMs are named, and charged.

    Attributes:
        scoring: The metric to hand to DSPy.
        gate: That all LM calls pass.
        trajectory: Of the candidates so far.
    """

    teacher_lm: dspy.LM
    prompt_lm: dspy.LM
    scoring: Scoring
    gate: Gate
    trajectory: Trajectory

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """What DSPy's optimizers call a teacher with. A new one for each: SIMBA changes the LM in it."""
        return {"lm": self.teacher_lm.copy()}

    def threshold(self, wanted: float | None) -> float:
        """The score from which on a run makes a demonstration: the wanted one, else what the base gets on average.

        Then a demonstration shows the program at its better, on any metric's scale.
        """
        return max(self.scoring.base_mean if wanted is None else wanted, _LEAST_THRESHOLD)

    def evaluate(self, program: dspy.Module, how: str) -> Candidate:
        """Evaluate a program on the validation set and record it with how it came about, unless it is on record."""
        if self.scoring.has_base and (known := self.trajectory.whole(program)):
            return known
        evaluate = dspy.Evaluate(devset=list(self.valset), metric=self.scoring, num_threads=self.threads)
        with self.trajectory.saying(how):
            evaluate(program)
        found = self.trajectory.whole(program)
        assert found is not None, "an evaluation on the validation set is recorded"
        return found
