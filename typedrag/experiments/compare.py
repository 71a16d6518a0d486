"""Compare runs with a first one, question by question: differences, their sizes and their significance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Estimate
from typedrag.experiments import results
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.held_out import (
    RIGHT,
    TRUTH,
    Pair,
    Verdict,
    estimate_difference,
    held_out_test,
    pair_values,
    shared_ids,
)
from typedrag.experiments.results import METRIC, QuestionResult, Run, Tally, higher_is_better, value_of_failure

By = Literal["type", "subset"]
COSTS = tuple(f"cost/{name}" for name in results.COSTS)

FINGERPRINT = "dataset fingerprint"

NOT_IN_BOTH = "not in both runs"
NO_ANSWER = "no answer"
JUDGE_FAILED = "judge failed"
NOT_MEASURABLE = "nothing to measure by"
_REASONS = (NOT_IN_BOTH, NO_ANSWER, JUDGE_FAILED, NOT_MEASURABLE)
_JUDGED = ("linkage/score", "coverage/score")
"""Measures that a fabrication can win."""
_TRUTHS = {TRUTH: "is less truthful", RIGHT: "has fewer right answers"}


class Stratum(NamedTuple):
    """A part of the questions: all of them, those of a type, or those of a subset."""

    by: Literal["all", "type", "subset"] = "all"
    name: str = "all"


ALL = Stratum()


@dataclass(frozen=True, kw_only=True)
class Difference(Verdict):
    """A run and the baseline on the n questions of a stratum for which both have a value.

    Only one measure of a metric is tested; see `compare`.

    Attributes:
        measure: As `metric/measure`.
        left_out: The number of the stratum's other questions by reason.
        answered: The difference over the questions that both answered, untested, if a program failed at others, which
            count as wrong answers.
    """

    measure: str
    run: str
    stratum: Stratum
    left_out: Mapping[str, int]
    answered: Verdict | None = None


@dataclass(frozen=True)
class Disagreement:
    """A run that judges prefer to another, although it is less true; runs are named by their labels.

    Attributes:
        judged: The preferred run's value less the other's, by measure.
        truth: `truthfulness/truthfulness` or `truthfulness/right`.
        difference: The preferred run's truth less the other's, below 0.
    """

    preferred: str
    other: str
    judged: dict[str, Estimate]
    truth: str
    difference: Estimate

    def __str__(self) -> str:
        by = ", ".join(f"{name} {format_estimate(gain, signed=True)}" for name, gain in self.judged.items())
        lost = f"{self.truth} {format_estimate(self.difference, signed=True)}"
        return (
            f"rank and truth disagree: {self.preferred} is better than {self.other} by {by}, "
            f"and {_TRUTHS[self.truth]}, {lost}: the judge may be paying for fabrications"
        )


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
    decisive: str = "",
    programs: int = 1,
) -> RunComparison:
    """Compare runs with one of them on the questions that they share.

    Of each metric one measure is tested: its score, or the measure that has the metric's name, or else the first that
    is asked for. The others are measured from the same answers and judgments, and are shown without a verdict. p-values
    are corrected for all tests of a family: of metrics over all questions, of metrics by type or subset, and of costs.

    Args:
        runs: Two or more runs, over the same data and measured alike.
        baseline: The position of the run that the others are compared with.
        measures: Measures as `metric/measure`, or a metric's name for all of its measures; by default all
            that the baseline and another run have.
        by: The parts of the questions to compare besides all of them.
        force: Compare in spite of conflicts; a question whose text differs is in neither run.
        decisive: The measure that was chosen before; over all questions, it is corrected for no other one.
        programs: The number of programs that were ever compared on these questions; p-values are corrected for them.
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
    rows = [row for i in others for row in _rows(first, runs[i], labels[i], chosen, by)]
    families: dict[str, list[_Row]] = {}
    for row in rows:
        alone = (row.measure, row.stratum) == (decisive, ALL)
        family = decisive if alone else f"{row.measure.startswith('cost/')} {row.stratum.by}"
        families.setdefault(family if chosen[row.measure] else "", []).append(row)
    verdicts = {id(row): estimate_difference(row.pair, seed=seed) for row in families.pop("", ())}
    for members in families.values():
        tested = held_out_test([row.pair for row in members], programs=programs, seed=seed)
        verdicts |= {id(row): verdict for row, verdict in zip(members, tested, strict=True)}
    warnings = tuple(
        str(line) for i in others for line in disagreements(first, runs[i], (labels[baseline], labels[i]), seed)
    )
    return RunComparison(
        labels[baseline],
        tuple(labels[i] for i in others),
        tuple(row.difference(verdicts[id(row)], seed) for row in rows),
        conflicts,
        warnings=warnings,
        tallies={labels[i]: runs[i].tally for i in (baseline, *others)},
    )


def disagreements(baseline: Run, run: Run, labels: tuple[str, str], seed: int = 0) -> list[Disagreement]:
    """The disagreements of two runs: a judge prefers one, and the other is more truthful or has more right answers.

    Both differences are beyond chance, in opposite directions. The result does not depend on which run is the
    baseline, and is empty if truthfulness was not measured.
    """
    conflicts = []
    for first, second, named in ((baseline, run, labels), (run, baseline, labels[::-1])):
        judged = {
            m: v for m, v in zip(_JUDGED, _tests(first, second, _JUDGED, seed), strict=True) if v.verdict == "better"
        }
        for truth, lost in zip(_TRUTHS, _tests(first, second, list(_TRUTHS), seed), strict=True):
            if judged and lost.verdict == "worse" and lost.difference:
                gained = {m: v.difference for m, v in judged.items() if v.difference}
                conflicts.append(Disagreement(named[1], named[0], gained, truth, lost.difference))
    return conflicts


def _tests(first: Run, second: Run, measures: Sequence[str], seed: int) -> list[Verdict]:
    return held_out_test([pair_values(first, second, measure) for measure in measures], seed=seed)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """The names of runs; runs with the same name also get their folder."""
    names = Counter(run.name for run in runs)
    return [run.name if names[run.name] == 1 else f"{run.name} ({run.path})" for run in runs]


def conflicts_between(baseline: Run, run: Run) -> list[str]:
    """The settings, with both values, and the questions that keep the numbers of two runs from being compared."""
    ours, theirs = baseline.settings, run.settings
    shared = [name for name in ours if name.startswith(METRIC) and name in theirs]
    texts, others = baseline.groups, run.groups
    differing = [i for i in texts if texts[i] != others.get(i, texts[i])]
    questions = [f"another question under the id '{differing[0]}' ({len(differing)} such)"] if differing else []
    return questions + [
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


class _Row(NamedTuple):
    """The values of two runs for one measure, over the questions of a stratum."""

    measure: str
    run: str
    stratum: Stratum
    pair: Pair
    answered: Pair
    left_out: dict[str, int]

    def difference(self, verdict: Verdict, seed: int) -> Difference:
        fewer = len(self.answered.base) < len(self.pair.base)
        return Difference(
            **{**vars(verdict), "more_is_better": higher_is_better(self.measure)},
            measure=self.measure,
            run=self.run,
            stratum=self.stratum,
            left_out=self.left_out,
            answered=estimate_difference(self.answered, seed=seed) if fewer else None,
        )


def _rows(baseline: Run, run: Run, label: str, measures: Iterable[str], by: Sequence[By]) -> Iterator[_Row]:
    ours, theirs = ({q.id: q for q in r.questions} for r in (baseline, run))
    questions = {**theirs, **ours}
    parts = {s: [i for i, q in questions.items() if belongs(q, s)] for s in strata(list(questions.values()), by)}
    for measure in measures:
        first, second = baseline.values(measure), run.values(measure)
        for part, ids in parts.items():
            pair, answered = (pair_values(baseline, run, measure, ids, answered=only) for only in (False, True))
            paired = shared_ids(baseline, run) & first.keys() & second.keys()
            reasons = Counter(
                _first_reason(measure, (ours.get(i), i in first), (theirs.get(i), i in second))
                for i in ids
                if i not in paired
            )
            left_out = {reason: reasons[reason] for reason in _REASONS if reason in reasons}
            yield _Row(measure, label, part, pair, answered, left_out)


def _first_reason(measure: str, *sides: tuple[QuestionResult | None, bool]) -> str:
    """The first reason, in the order of `_REASONS`, why a question lacks a value in one run or both."""
    metric = measure.partition("/")[0]
    missing = (_why_missing(q, metric) for q, has_value in sides if not has_value)
    return min(missing, key=_REASONS.index, default=NOT_IN_BOTH)  # the two have other questions under this id


def _choose_measures(runs: Sequence[Run], baseline: int, names: Sequence[str] | None) -> dict[str, bool]:
    """The measures to compare, and whether each is the one of its metric that is tested; all costs are.

    A measure by which a failed answer has no value is not tested if any answer failed: failures would be left out.
    """
    others = {m for i, run in enumerate(runs) if i != baseline for m in run.measures}
    of_metric: dict[str, list[str]] = {}
    for measure in (m for m in runs[baseline].measures if m in others):
        of_metric.setdefault(measure.partition("/")[0], []).append(measure)
    for metric, known in of_metric.items():
        named = [f"{metric}/{metric}", *(known if len(known) == 1 else ())]
        primary = next((m for m in named if m in known and higher_is_better(m)), f"{metric}/score")
        of_metric[metric] = list(dict.fromkeys((primary, *known)))
    shared = [*(m for known in of_metric.values() for m in known), *COSTS]
    chosen = dict.fromkeys(m for name in names or () for m in _named(name, shared)) if names else shared
    tested = {m.partition("/")[0]: m for m in reversed(list(chosen))}  # the first that is asked for,
    tested |= {metric: known[0] for metric, known in of_metric.items() if known[0] in chosen}  # but for the primary one
    failed = any(run.tally.failed for run in runs)
    return {
        m: m.startswith("cost/") or (tested[m.partition("/")[0]] == m and not (failed and value_of_failure(m) is None))
        for m in chosen
    }


def _named(name: str, shared: Sequence[str]) -> list[str]:
    metric, _, measure = name.partition("/")
    if measure == "score" and any(m.startswith(f"{metric}/") for m in shared):
        return [name]
    named = [m for m in shared if m == name or m.startswith(f"{name}/")]
    if not named:
        raise InputError(f"no two runs to compare have measure '{name}'", f"Measures: {', '.join(shared)}")
    return named
