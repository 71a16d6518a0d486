"""What is asked of a compile, what it takes, and a compile that is under way, as an optimizer gets to see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import dspy

from typedrag.optimizers.compile.teleprompters.budget import Gate
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, Trajectory
from typedrag.optimizers.compile.teleprompters.scoring import Metric, Scoring

_LEAST_THRESHOLD = 0.001
"""DSPy takes a threshold of 0 for none, and a metric's prediction for success whatever its score."""


@dataclass(frozen=True)
class RunCost:
    """What it takes on average to run a program for one example and to judge what comes out."""

    lm_calls: float
    tokens: float
    dollars: float = 0.0
    """As far as prices are known."""


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """What is to be compiled, against what, and by which LMs.

    Attributes:
        student: Made better. It is not changed itself.
        trainset: Where demonstrations, rules and feedback come from.
        valset: What candidates are chosen by. Neither has an example of the test split.
        metric: See `scoring.Metric`. LMs of its own should be metered (see `spending`), or what they
            take is not counted.
        task_lm: The LM that the student is compiled for.
        log_dir: All that is needed to resume, and the best so far; of this compile alone.
        teacher_lm: Makes demonstrations; by default the task's.
        prompt_lm: Writes instructions and reflects; by default the task's.
        threads: Examples that are run at once.
        seed: Another one draws other examples and candidates.
        run_cost: What estimates are made from; by default a guess, for four predictors and a judge.
        depends_on: What else makes it this compile, as JSON values: the index, the metric's options.
        redact: What hides keys and addresses in the log of DSPy.
    """

    student: dspy.Module
    trainset: Sequence[dspy.Example]
    valset: Sequence[dspy.Example]
    metric: Metric
    task_lm: dspy.LM
    log_dir: Path
    teacher_lm: dspy.LM | None = None
    prompt_lm: dspy.LM | None = None
    threads: int = 8
    seed: int = 0
    run_cost: RunCost = RunCost(lm_calls=5, tokens=5_000)
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    redact: Callable[[str], str] = str


@dataclass(frozen=True)
class CostEstimate:
    """About what a compile takes if nothing stops it; rather too much, since what the cache answers is counted.

    Attributes:
        runs: Of the program, each with a judgment, beginning with the base on the validation set.
        proposals: LM calls that write instructions.
        lm_calls: Of both; so are `tokens`, and `dollars` as far as prices are known.
    """

    runs: int
    proposals: int
    lm_calls: int
    tokens: int
    dollars: float = 0.0

    _TOKENS_PER_PROPOSAL: ClassVar[int] = 3_000

    @classmethod
    def of(cls, request: CompileRequest, runs: int, proposals: int = 0) -> CostEstimate:
        """For so many runs and proposals."""
        cost = request.run_cost
        tokens = runs * cost.tokens + proposals * cls._TOKENS_PER_PROPOSAL
        dollars = cost.dollars / cost.tokens * tokens if cost.tokens else 0.0
        return cls(runs, proposals, round(runs * cost.lm_calls + proposals), round(tokens), dollars)


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
