"""Base against compiled, on questions that neither was compiled nor chosen on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dspy

from typedrag.errors import InputError, NotMeasurable, StepFailed
from typedrag.experiments.balance import question_type_of
from typedrag.experiments.compare.compare import ALL, COSTS, Difference, RunComparison, compare
from typedrag.experiments.compare.statistics import ALPHA
from typedrag.experiments.compare.truth import TRUTH, verdict_of
from typedrag.experiments.compare.weighted import SCORE, with_objective
from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run
from typedrag.experiments.judges.judging import Stage, judge_each
from typedrag.files.journal import Journal
from typedrag.lms.spending import Account, charging
from typedrag.lms.trail import Stopwatch
from typedrag.metrics import Metric
from typedrag.metrics.arithmetic.estimate import Estimate
from typedrag.programs.artifact.compiled import Change, Score, Verdict
from typedrag.records import Answer, Usage
from typedrag.redaction import Redactor


@dataclass(frozen=True)
class HeldOut:
    """What the test split says of a compiled program.

    Attributes:
        comparison: With the base; None if nothing was found that differs from it.
        base: Its means, by measure.
        compiled: The compiled one's.
        tests: Compiled programs that were tested on these questions, this one counted in.
    """

    comparison: RunComparison | None
    base: Mapping[str, Score]
    compiled: Mapping[str, Score]
    tests: int = 1

    @property
    def overall(self) -> Difference | None:
        """The difference that decides; None if nothing could be measured of both."""
        return next((d for d in self.differences if d.measure == SCORE and d.stratum == ALL), None)

    @property
    def truth(self) -> Estimate | None:
        """The difference in truthfulness; None where it was not measured."""
        return next((d.difference for d in self.differences if d.measure == TRUTH and d.stratum == ALL), None)

    @property
    def p(self) -> float | None:
        """Of the paired permutation test of the objective, corrected for the number of `tests` (Bonferroni)."""
        found = self.overall.p if self.overall else None
        return None if found is None else min(1.0, found * self.tests)

    @property
    def differences(self) -> Sequence[Difference]:
        """By measure, then by question type."""
        return self.comparison.differences if self.comparison else ()

    @property
    def changes(self) -> dict[str, Change]:
        """The differences, named as the means are."""
        return {
            _name(d): Change(d.difference.value, d.difference.low, d.difference.high, d.difference.n, d.p)
            for d in self.differences
            if d.difference is not None and _is_told(d)
        }

    @property
    def verdict(self) -> Verdict:
        """Whether the compiled one is better or worse by more than chance; never better if it is less truthful."""
        return verdict_of(self._by_objective, self.truth)

    @property
    def _by_objective(self) -> Verdict:
        found = self.overall
        if found is None or found.difference is None or self.p is None or self.p >= ALPHA:
            return ""
        return "better" if found.difference.value > 0 else "worse"


def held_out(
    base: Run, compiled: Run | None, weights: Mapping[str, float], seed: int = 0, *, tests: int = 1
) -> HeldOut:
    """Compare the base's run over the test split with the compiled program's; None if that is the same program.

    They are compared by what was compiled against, metrics by their weights. A question without an answer scores 0,
    as it does while compiling; one whose judge failed is left out of both.
    """
    named = [replace(base, name="base"), replace(compiled or base, name="compiled")]
    pair = [with_objective(run, weights, unanswered=0.0) for run in named]
    comparison = compare(pair, by=("type",), seed=seed, force=True)
    before, after = _scores(comparison, "baseline"), _scores(comparison, "other")
    if compiled is None:
        return HeldOut(None, before, before)
    return HeldOut(comparison, before, after, tests)


def _scores(comparison: RunComparison, side: Literal["baseline", "other"]) -> dict[str, Score]:
    means = {_name(d): getattr(d, side) for d in comparison.differences if _is_told(d)}
    return {name: Score(m.value, m.low, m.high, m.n) for name, m in means.items() if m is not None}


def _name(difference: Difference) -> str:
    """As `linkage/mrr` of all questions, and as `objective/score/reason` of those of a type."""
    of_all = difference.stratum == ALL
    return difference.measure if of_all else f"{difference.measure}/{difference.stratum.name}"


def _is_told(difference: Difference) -> bool:
    """Whether a compiled program says it: by type, only the objective and the costs."""
    return difference.stratum == ALL or difference.measure in (SCORE, *COSTS)


def run_alone(
    student: dspy.Module,
    metric: Metric,
    examples: Sequence[dspy.Example],
    *,
    lm: dspy.LM,
    file: Path,
    threads: int,
    stage: Stage,
    name: str,
    redact: Redactor,
) -> Run:
    """Run and measure a module that writes no answers, such as a type classifier, as a run like others.

    The file gets a line for each example that is done, which is never done again.

    Raises:
        LMUnavailable: If the LM cannot be used; what was done is kept.
        RetrievalError: If the index cannot be used; the same.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(file, redact)
    done = {line["id"] for line in journal}

    def run(example: dspy.Example) -> None:
        journal.append(_run_once(student, metric, example))

    left = [example for example in examples if str(example.id) not in done]
    judged = judge_each(run, left, scorer=lm, threads=threads, stage=stage, name=name)
    for example, problem in judged.failures:
        journal.append({**_nothing(example), "problem": problem})
    results = {line["id"]: line for line in journal}
    questions = tuple(_question(example, metric.name, results[str(example.id)]) for example in examples)
    return Run(name, file, {}, questions, len(questions))


def _nothing(example: dspy.Example) -> dict[str, Any]:
    """The line of an example that came to nothing."""
    return {"id": str(example.id), "said": None, "score": None, "problem": "", "seconds": 0.0, "usage": asdict(Usage())}


def _run_once(student: dspy.Module, metric: Metric, example: dspy.Example) -> dict[str, Any]:
    watch = Stopwatch()
    found: dict[str, Any] = {}
    with charging(Account()) as account:
        try:
            prediction = student(**example.inputs())
            found["said"] = {name: str(value) for name, value in prediction.items() if isinstance(value, str | int)}
            found["score"] = metric(example, prediction).score
        except (InputError, StepFailed, NotMeasurable) as failure:
            found["problem"] = str(failure)
    spent = account.spent
    took = {"seconds": watch.seconds, "usage": asdict(spent.usage), "spent": spent.to_dict()}
    return {**_nothing(example), **found, **took}


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
