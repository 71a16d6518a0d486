"""Compare the compiled program with its base, on questions that were used neither to compile nor to choose it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dspy

from typedrag.errors import InputError, NotMeasurable, StepFailed
from typedrag.experiments.balance import question_type_of
from typedrag.experiments.compare.compare import ALL, COSTS, Difference, RunComparison, compare
from typedrag.experiments.compare.truth import TRUTH, verdict_of
from typedrag.experiments.compare.weighted import SCORE, with_objective
from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run
from typedrag.experiments.judges.judging import judge_each
from typedrag.files.journal import Journal
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.lms.trace import Stopwatch
from typedrag.metrics import Metric
from typedrag.programs.artifact.compiled import Change, Verdict
from typedrag.records import Answer, Estimate, Usage
from typedrag.redaction import Redactor
from typedrag.runs.stages import Listener


@dataclass(frozen=True)
class HeldOut:
    """The result of a compiled program on the test split.

    Attributes:
        comparison: The comparison with the base; None if the compiled program does not differ from it.
        base: The base's means, by measure.
        compiled: The compiled program's means, by measure.
        tests: The number of compiled programs that were ever tested on these questions, including this one.
    """

    comparison: RunComparison | None
    base: Mapping[str, Estimate]
    compiled: Mapping[str, Estimate]
    tests: int = 1

    @property
    def overall(self) -> Difference | None:
        """The difference in the objective, which decides; None if the objective was not measured of both."""
        return next((d for d in self.differences if d.measure == SCORE and d.stratum == ALL), None)

    @property
    def truth(self) -> Difference | None:
        """The difference in truthfulness; None if it was not measured."""
        return next((d for d in self.differences if d.measure == TRUTH and d.stratum == ALL), None)

    @property
    def p(self) -> float | None:
        """p-value of the test of the objective, corrected for the number of `tests`."""
        return self.overall.corrected_p if self.overall else None

    @property
    def differences(self) -> Sequence[Difference]:
        """The differences by measure, then by question type."""
        return self.comparison.differences if self.comparison else ()

    @property
    def changes(self) -> dict[str, Change]:
        """The differences, with the names of the means."""
        return {
            _name(d): Change(**asdict(d.difference), p=d.p)
            for d in self.differences
            if d.difference is not None and _is_told(d)
        }

    @property
    def verdict(self) -> Verdict:
        """`better` or `worse` if that is more than chance, else empty; never `better` if less truthful."""
        return verdict_of(self.overall, self.truth)


def held_out(
    base: Run,
    compiled: Run | None,
    weights: Mapping[str, float],
    measurable: Mapping[str, Collection[str]],
    seed: int = 0,
    *,
    tests: int = 1,
) -> HeldOut:
    """Compare the base's run over the test split with that of the compiled program; None if they are the same program.

    Runs are compared by the weighted metrics that were compiled against; see `with_objective`.
    """
    named = [replace(base, name="base"), replace(compiled or base, name="compiled")]
    pair = [with_objective(run, weights, measurable) for run in named]
    comparison = compare(pair, by=("type",), seed=seed, force=True, decisive=SCORE, programs=tests)
    before, after = _scores(comparison, "baseline"), _scores(comparison, "other")
    if compiled is None:
        return HeldOut(None, before, before)
    return HeldOut(comparison, before, after, tests)


def _scores(comparison: RunComparison, side: Literal["baseline", "other"]) -> dict[str, Estimate]:
    means = {_name(d): getattr(d, side) for d in comparison.differences if _is_told(d)}
    return {name: mean for name, mean in means.items() if mean is not None}


def _name(difference: Difference) -> str:
    """The name of a difference: `linkage/mrr` over all questions, `objective/score/reason` over those of a type."""
    of_all = difference.stratum == ALL
    return difference.measure if of_all else f"{difference.measure}/{difference.stratum.name}"


def _is_told(difference: Difference) -> bool:
    """True if the difference is saved with a compiled program: by type, only the objective and the costs are."""
    return difference.stratum == ALL or difference.measure in (SCORE, *COSTS)


def run_alone(
    student: dspy.Module,
    metric: Metric,
    examples: Sequence[dspy.Example],
    *,
    lm: dspy.LM,
    file: Path,
    threads: int,
    listener: Listener,
    name: str,
    redact: Redactor,
) -> Run:
    """Run and measure a module that writes no answers, such as a type classifier; the result is an ordinary run.

    The file gets a line for each finished example; a resumed run skips these.

    Raises:
        LMUnavailable: If the LM cannot be used; finished work is kept.
        RetrievalError: If the index cannot be used; finished work is kept.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(file, redact)
    done = {line["id"] for line in journal}

    def run(example: dspy.Example) -> None:
        journal.append(_run_once(student, metric, example))

    left = [example for example in examples if str(example.id) not in done]
    judged = judge_each(run, left, scorer=lm, threads=threads, listener=listener, name=name)
    for example, problem in judged.failures:
        journal.append({**_nothing(example), "problem": problem})
    results = {line["id"]: line for line in journal}
    questions = tuple(_question(example, metric.name, results[str(example.id)]) for example in examples)
    return Run(name, file, {}, questions, len(questions))


def _nothing(example: dspy.Example) -> dict[str, Any]:
    """The line of an example without a result."""
    return {"id": str(example.id), "said": None, "score": None, "problem": "", "seconds": 0.0, "usage": asdict(Usage())}


def _run_once(student: dspy.Module, metric: Metric, example: dspy.Example) -> dict[str, Any]:
    watch = Stopwatch()
    line: dict[str, Any] = {}
    with track_cost(CostTracker()) as account:
        try:
            prediction = student(**example.inputs())
            line["said"] = {name: str(value) for name, value in prediction.items() if isinstance(value, str | int)}
            line["score"] = metric(example, prediction).score
        except (InputError, StepFailed, NotMeasurable) as failure:
            line["problem"] = str(failure)
    spent = account.spent
    took = {"seconds": watch.seconds, "usage": asdict(spent.usage), "spent": spent.to_dict()}
    return {**_nothing(example), **line, **took}


def _question(example: dspy.Example, metric: str, held: Mapping[str, Any]) -> QuestionResult:
    score, problem = held["score"], held["problem"]
    answer = Answer(
        question=example.question,
        answer=json.dumps(held["said"], ensure_ascii=False),
        seconds=held["seconds"],
        usage=Usage(**held["usage"]),
    )
    return QuestionResult(
        id=str(example.id),
        question=example.question,
        question_type=question_type_of(example),
        subset=str(example.get("subset") or ""),
        answer=answer if held["said"] is not None else None,
        error=problem if held["said"] is None else "",
        metrics={metric: MetricResult(score, measures={"score": score} if score is not None else {}, problem=problem)},
    )
