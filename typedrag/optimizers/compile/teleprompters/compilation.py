"""Requests and cost estimates of compiles, and a compile under way as optimizers see it."""

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
"""The least threshold: DSPy takes 0 for none, and then any prediction of a metric for success."""


@dataclass(frozen=True)
class RunCost:
    """The mean cost of running a program for one example and judging its answer."""

    lm_calls: float
    tokens: float
    dollars: float = 0.0
    """As far as prices are known."""


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """A student to compile, its data and metric, and the LMs to use.

    Attributes:
        student: The program to make better; it is not changed itself.
        trainset: Examples for demonstrations, rules and feedback.
        valset: Examples that choose candidates. Neither set has an example of the test split.
        metric: See `scoring.Metric`. LMs of its own should be metered (see `spending`), or their cost
            is not counted.
        task_lm: The LM that the student is compiled for.
        log_dir: The folder of this compile alone: all that is needed to resume, and the best so far.
        teacher_lm: The LM that makes demonstrations; by default the task's.
        prompt_lm: The LM that writes instructions and reflects; by default the task's.
        threads: Examples run at once.
        seed: The seed that draws examples and candidates.
        run_cost: The cost that estimates are made from; by default a guess, for four predictors and a judge.
        depends_on: Other settings that the compile depends on, as JSON values: the index, the metric's options.
        redact: Hides keys and addresses in the log of DSPy.
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
    """The estimated cost of a compile that nothing stops; rather too high, since cached replies are counted.

    Attributes:
        runs: Runs of the program, each with a judgment, including those of the base on the validation set.
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
        """The estimate for so many runs and proposals."""
        cost = request.run_cost
        tokens = runs * cost.tokens + proposals * cls._TOKENS_PER_PROPOSAL
        dollars = cost.dollars / cost.tokens * tokens if cost.tokens else 0.0
        return cls(runs, proposals, round(runs * cost.lm_calls + proposals), round(tokens), dollars)


@dataclass(frozen=True, kw_only=True)
class Compilation(CompileRequest):
    """A request under way, within the LMs, the gate and the cache of the compile.

    Its sets hold the examples that are used, in turn from each question type; the base has been evaluated on
    the validation set. All its LMs are set, and charged.

    Attributes:
        scoring: The metric to hand to DSPy.
        gate: The gate that all LM calls pass.
        trajectory: The candidates so far.
    """

    teacher_lm: dspy.LM
    prompt_lm: dspy.LM
    scoring: Scoring
    gate: Gate
    trajectory: Trajectory

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """The teacher's settings for DSPy's optimizers, with a new LM each time: SIMBA changes it."""
        return {"lm": self.teacher_lm.copy()}

    def threshold(self, score: float | None) -> float:
        """The least score of a run that makes a demonstration: the given one, else the base's mean.

        With the base's mean, demonstrations show the program at its better, on any metric's scale.
        """
        return max(self.scoring.base_mean if score is None else score, _LEAST_THRESHOLD)

    def evaluate(self, program: dspy.Module, how: str) -> Candidate:
        """Evaluate a program on the validation set and record it with its origin, unless it is recorded already."""
        if self.scoring.has_base and (known := self.trajectory.whole(program)):
            return known
        evaluate = dspy.Evaluate(devset=list(self.valset), metric=self.scoring, num_threads=self.threads)
        with self.trajectory.saying(how):
            evaluate(program)
        candidate = self.trajectory.whole(program)
        assert candidate is not None, "an evaluation on the validation set is recorded"
        return candidate
