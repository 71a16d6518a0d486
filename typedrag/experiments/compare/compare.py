"""Compare runs with a first one, question by question: differences, their sizes and their significance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from typedrag.errors import InputError
from typedrag.experiments.compare.disagreement import disagreements
from typedrag.experiments.compare.statistics import (
    ALPHA,
    by_group,
    correct_p_values,
    paired_bootstrap,
    permutation_p_values,
    questions_needed,
)
from typedrag.experiments.evaluate import results
from typedrag.experiments.evaluate.results import QuestionResult, Run, Tally
from typedrag.experiments.evaluate.run_store import METRIC
from typedrag.metrics.defects import Defects
from typedrag.question_types import QuestionType
from typedrag.records import Estimate

By = Literal["type", "subset"]
COSTS = tuple(f"cost/{name}" for name in results.COSTS)

FINGERPRINT = "dataset fingerprint"

NOT_IN_BOTH = "not in both runs"
NO_ANSWER = "no answer"
JUDGE_FAILED = "judge failed"
NOT_MEASURABLE = "nothing to measure by"
_REASONS = (NOT_IN_BOTH, NO_ANSWER, JUDGE_FAILED, NOT_MEASURABLE)

_LOWER_IS_BETTER = {
    *("rank", "expected_rank", "steps", "follow_up", "invalid", "wrong", "not_answered"),
    *Defects.measures,
}
"""Names of measures. Covering follow-up sub-questions counts against an answer (sub-question coverage, section 4)."""


class Stratum(NamedTuple):
    """A part of the questions: all of them, those of a type, or those of a subset."""

    by: Literal["all", "type", "subset"] = "all"
    name: str = "all"


ALL = Stratum()


@dataclass(frozen=True, slots=True)
class Difference:
    """A run and the baseline on the n questions of a stratum for which both have a value.

    Attributes:
        measure: As `metric/measure`.
        left_out: The number of the stratum's other questions by reason; failures of a program or a judge never count
            as bad values.
        baseline: The baseline's mean; None without questions.
        other: The run's mean.
        difference: The run's mean minus the baseline's.
        p: p-value of the paired permutation test; None without questions.
        corrected_p: The p-value, corrected for all tests of the comparison.
        questions_needed: The number of questions that would show such a difference; None if there is none.
    """

    measure: str
    run: str
    stratum: Stratum
    n: int
    left_out: Mapping[str, int]
    baseline: Estimate | None = None
    other: Estimate | None = None
    difference: Estimate | None = None
    p: float | None = None
    corrected_p: float | None = None
    questions_needed: int | None = None

    @property
    def verdict(self) -> Literal["better", "worse", ""]:
        """`better` or `worse` if the corrected p-value shows more than chance, else empty."""
        if self.difference is None or self.corrected_p is None or self.corrected_p >= ALPHA:
            return ""
        return "better" if (self.difference.value > 0) == higher_is_better(self.measure) else "worse"


@dataclass(frozen=True)
class RunComparison:
    """The result of `compare`; runs are named by their labels.

    Attributes:
        differences: The differences by run, then measure, then stratum, all questions first.
        conflicts: Reasons against comparing the runs, one line each; empty unless it was forced.
        tallies: The tally of each run, the baseline's first.
        warnings: Runs that judges prefer although they are less true, one line each; see `disagreements`.
    """

    baseline: str
    runs: tuple[str, ...]
    differences: tuple[Difference, ...]
    conflicts: tuple[str, ...] = field(default=())
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        differences = [
            {**asdict(d), "stratum": d.stratum.name, "by": d.stratum.by, "verdict": d.verdict} for d in self.differences
        ]
        return {**asdict(replace(self, differences=())), "differences": differences}


def compare(
    runs: Sequence[Run],
    *,
    baseline: int = 0,
    measures: Sequence[str] | None = None,
    by: Sequence[By] = ("type", "subset"),
    seed: int = 0,
    force: bool = False,
) -> RunComparison:
    """Compare runs with one of them on the questions that they share.

    p-values are corrected within two families: measures of answers, and costs. In one family, the costs,
    whose differences are seldom chance, would make the others look significant.

    Args:
        runs: Two or more runs, over the same data and measured alike.
        baseline: The position of the run that the others are compared with.
        measures: Measures as `metric/measure`, or a metric's name for all of its measures; by default all
            that the baseline and another run have.
        by: The parts of the questions to compare besides all of them.
        force: Compare in spite of conflicts.

    Raises:
        InputError: If there are fewer than two runs, a measure is not known, or there are conflicts.
    """
    if len(runs) < 2:
        raise InputError("one run cannot be compared", "Name two or more")
    labels = run_labels(runs)
    first, others = runs[baseline], [i for i in range(len(runs)) if i != baseline]
    conflicts = tuple(f"{labels[i]}: {line}" for i in others for line in conflicts_between(first, runs[i]))
    if conflicts and not force:
        raise InputError(
            f"runs do not compare with {labels[baseline]}. {'; '.join(conflicts)}",
            "Compare runs over the same data, measured alike, or use --force",
        )
    chosen = _choose_measures(runs, baseline, measures)
    pairs = [pair for i in others for pair in _pairs(first, runs[i], labels[i], chosen, by)]
    p_values = permutation_p_values([pair.differences for pair in pairs], seed=seed)
    tested = [pair.difference(p, seed) for pair, p in zip(pairs, p_values, strict=True)]
    tallies = {labels[i]: runs[i].tally for i in (baseline, *others)}
    warnings = tuple(
        str(line) for i in others for line in disagreements(first, runs[i], (labels[baseline], labels[i]), seed)
    )
    return RunComparison(
        labels[baseline],
        tuple(labels[i] for i in others),
        tuple(_corrected(tested)),
        conflicts,
        warnings=warnings,
        tallies=tallies,
    )


def higher_is_better(measure: str) -> bool:
    """True if more of a measure is better; less is better for costs and ranks.

    Example:
        >>> [higher_is_better(m) for m in ("linkage/mrr", "linkage/expected_rank", "cost/tokens")]
        [True, False, False]
    """
    metric, _, name = measure.partition("/")
    return metric != "cost" and name not in _LOWER_IS_BETTER


def run_labels(runs: Sequence[Run]) -> list[str]:
    """The names of runs; runs with the same name also get their folder."""
    names = Counter(run.name for run in runs)
    return [run.name if names[run.name] == 1 else f"{run.name} ({run.path})" for run in runs]


def conflicts_between(baseline: Run, run: Run) -> list[str]:
    """The settings, with both values, that keep the numbers of two runs from being compared."""
    ours, theirs = baseline.settings, run.settings
    shared = [name for name in ours if name.startswith(METRIC) and name in theirs]
    return [
        f"another {name} ({_shown(theirs.get(name))}, not {_shown(ours.get(name))})"
        for name in (FINGERPRINT, *shared)
        if ours.get(name) != theirs.get(name)
    ]


def _shown(value: Any) -> str:
    return value[:12] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def strata(questions: Sequence[QuestionResult], by: Sequence[By]) -> list[Stratum]:
    """All questions, then the types in the taxonomy's order, then the subsets in the order of their first question."""
    types = {q.question_type for q in questions}
    parts = [ALL]
    if "type" in by:
        parts += [Stratum("type", t.value) for t in QuestionType if t in types]
    if "subset" in by:
        parts += [Stratum("subset", name) for name in dict.fromkeys(q.subset for q in questions) if name]
    return parts


def belongs(question: QuestionResult, stratum: Stratum) -> bool:
    """True if a question belongs to a stratum."""
    if stratum.by == "type":
        return question.question_type == stratum.name
    return stratum.by == "all" or question.subset == stratum.name


def _why_missing(question: QuestionResult | None, metric: str) -> str:
    """The reason why a question of a run, or one that is not in it (None), has no value of this metric."""
    if question is None:
        return NOT_IN_BOTH
    if question.answer is None:
        return NO_ANSWER
    if (result := question.metrics.get(metric)) is None:
        return NOT_IN_BOTH
    return JUDGE_FAILED if result.measurable and result.score is None else NOT_MEASURABLE


class _Pair(NamedTuple):
    """The values of two runs for one measure, over the questions of a stratum."""

    measure: str
    run: str
    stratum: Stratum
    baseline: list[float]
    other: list[float]
    questions: list[str]
    left_out: dict[str, int]

    @property
    def differences(self) -> list[float]:
        """The differences, summed up by question, since a question may have several values."""
        return by_group([b - a for a, b in zip(self.baseline, self.other, strict=True)], self.questions)

    def difference(self, p: float | None, seed: int) -> Difference:
        means = paired_bootstrap(self.other, self.baseline, groups=self.questions, seed=seed)
        without = Difference(self.measure, self.run, self.stratum, len(self.other), self.left_out, p=p)
        if means is None:
            return without
        return replace(without, **means._asdict(), questions_needed=questions_needed(self.differences))


def _pairs(baseline: Run, run: Run, label: str, measures: Sequence[str], by: Sequence[By]) -> Iterator[_Pair]:
    ours, theirs = ({q.id: q for q in r.questions} for r in (baseline, run))
    questions = {**theirs, **ours}
    groups = {**run.groups, **baseline.groups}
    parts = {s: [i for i, q in questions.items() if belongs(q, s)] for s in strata(list(questions.values()), by)}
    for measure in measures:
        first, second = baseline.values(measure), run.values(measure)
        for part, ids in parts.items():
            shared = [i for i in ids if i in first and i in second]
            reasons = Counter(
                _first_reason(measure, (ours.get(i), i in first), (theirs.get(i), i in second))
                for i in ids
                if i not in first or i not in second
            )
            left_out = {reason: reasons[reason] for reason in _REASONS if reason in reasons}
            units = [groups[i] for i in shared]
            yield _Pair(measure, label, part, [first[i] for i in shared], [second[i] for i in shared], units, left_out)


def _first_reason(measure: str, *sides: tuple[QuestionResult | None, bool]) -> str:
    """The first reason, in the order of `_REASONS`, why a question lacks a value in one run or both."""
    metric = measure.partition("/")[0]
    return min((_why_missing(q, metric) for q, has_value in sides if not has_value), key=_REASONS.index)


def _corrected(differences: Sequence[Difference]) -> list[Difference]:
    corrected: dict[int, float | None] = {}
    for family in (True, False):
        members = [i for i, d in enumerate(differences) if d.measure.startswith("cost/") == family]
        corrected |= zip(members, correct_p_values([differences[i].p for i in members]), strict=True)
    return [replace(d, corrected_p=corrected[i]) for i, d in enumerate(differences)]


def _choose_measures(runs: Sequence[Run], baseline: int, names: Sequence[str] | None) -> list[str]:
    others = {m for i, run in enumerate(runs) if i != baseline for m in run.measures}
    shared = [*(m for m in runs[baseline].measures if m in others), *COSTS]
    if not names:
        return shared
    chosen: dict[str, None] = {}
    for name in names:
        metric, _, measure = name.partition("/")
        named = [m for m in shared if m == name or m.startswith(f"{name}/")]
        if measure == "score" and any(m.startswith(f"{metric}/") for m in shared):
            named = [name]
        if not named:
            raise InputError(f"no two runs to compare have measure '{name}'", f"Measures: {', '.join(shared)}")
        chosen |= dict.fromkeys(named)
    return list(chosen)
