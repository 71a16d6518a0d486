"""A compile that is under way, as an optimizer gets to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from typedrag.lms.spending import Account
from typedrag.optimizers.compile.teleprompters.budget import Gate
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, Trajectory
from typedrag.optimizers.compile.teleprompters.optimizer import TypeOf
from typedrag.optimizers.compile.teleprompters.scoring import Scoring

_LEAST_THRESHOLD = 0.001
"""DSPy takes a threshold of 0 for none, and a metric's prediction for success whatever its score."""


@dataclass(frozen=True)
class Compilation:
    """What an optimizer works with. All of it runs within the LMs, the gate and the cache of the compile.

    Attributes:
        student: To be made better.
        trainset: In turn from each question type, as many as the settings say.
        valset: Likewise. The base has been evaluated on it.
        scoring: The metric to hand to DSPy.
        task_lm: That the student is compiled for; the LM that is configured.
        teacher_lm: Makes demonstrations.
        prompt_lm: Writes instructions and reflects.
        threads: Examples that are run at once.
        seed: Of everything that is drawn.
        type_of: The question type of an example.
        account: What is spent.
        gate: That all LM calls pass.
        trajectory: Of the candidates so far.
        folder: Of the compile, for what it must not do twice.
    """

    student: dspy.Module
    trainset: Sequence[dspy.Example]
    valset: Sequence[dspy.Example]
    scoring: Scoring
    task_lm: dspy.LM
    teacher_lm: dspy.LM
    prompt_lm: dspy.LM
    threads: int
    seed: int
    type_of: TypeOf
    account: Account
    gate: Gate
    trajectory: Trajectory
    folder: Path

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """What DSPy's optimizers call a teacher with. A new one for each: SIMBA changes the LM in it."""
        return {"lm": self.teacher_lm.copy()}

    def threshold(self, wanted: float | None) -> float:
        """The score from which on a run makes a demonstration.

        Args:
            wanted: What the settings say. By default it is what the base gets on average: then a
                demonstration shows the program at its better, on any metric's scale.
        """
        return max(self.scoring.base_mean if wanted is None else wanted, _LEAST_THRESHOLD)

    def evaluate(self, program: dspy.Module, how: str) -> Candidate:
        """Evaluate a program on the validation set and record it, unless it is on record.

        Args:
            program: The candidate.
            how: It came about.
        """
        if self.scoring.has_base and (known := self.trajectory.whole(program)):
            return known
        evaluate = dspy.Evaluate(devset=list(self.valset), metric=self.scoring, num_threads=self.threads)
        with self.trajectory.saying(how):
            evaluate(program)
        found = self.trajectory.whole(program)
        assert found is not None, "an evaluation on the validation set is recorded"
        return found
