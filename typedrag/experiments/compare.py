"""Compare runs with a first one, question by question: differences, their sizes and their significance."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from typedrag.core.errors import InputError, names_hint
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Estimate
from typedrag.experiments import held_out, results
from typedrag.experiments.formats import format_estimate, format_value
from typedrag.experiments.held_out import (
    RIGHT,
    TRUTH,
    Pair,
    Verdict,
    estimate_difference,
    fewest_questions,
    held_out_test,
    pair_values,
)
from typedrag.experiments.labels import GradedDifference, Grades, graded_differences
from typedrag.experiments.results import METRIC, QuestionResult, Run, Tally, higher_is_better, value_of_failure
from typedrag.metrics.objective import TRUTHFULNESS

By = Literal["type", "subset"]
COSTS = tuple(f"cost/{name}" for name in results.COSTS)
TOKENS = "cost/tokens"

FINGERPRINT = "dataset fingerprint"
NOT_IN_BOTH, NO_ANSWER, JUDGE_FAILED, NOT_MEASURABLE = _REASONS = (
    "not in both runs", "no answer", "judge failed", "nothing to measure by",
)  # fmt: skip
_JUDGED = ("linkage/score", "coverage/score")  # measures that a fabrication can win
_TRUTHS = {TRUTH: "is less truthful", RIGHT: "has fewer right answers"}


class Stratum(NamedTuple):
    """A part of the questions: all of them, those of a type, or those of a subset."""

    by: Literal["all", "type", "subset"] = "all"
    name: str = "all"


ALL = Stratum()


@dataclass(frozen=True, kw_only=True)
class Difference(Verdict):
    """A run and the baseline on the n questions of a stratum for which both have a value, the others by the reason why
    they are left out. Only one measure of a metric is tested; see `compare`. `answered` is the untested difference over
    the questions that both answered, if a program failed at others, which count as wrong answers."""

    measure: str
    run: str
    stratum: Stratum
    left_out: Mapping[str, int]
    answered: Verdict | None = None


@dataclass(frozen=True)
class Disagreement:
    """A run that judges prefer to another, although it is less true, by the differences of the preferred run's values
    from the other's; runs are named by their labels."""

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
    """The result of `compare`; runs are named by their labels. Differences come by run, then measure, then stratum;
    `conflicts` are the reasons against comparing the runs, empty unless it was forced; `graded` are the differences by
    people's grades."""

    baseline: str
    runs: tuple[str, ...]
    differences: tuple[Difference, ...]
    conflicts: tuple[str, ...] = field(default=())
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())
    graded: tuple[GradedDifference, ...] = field(default=())

    def headlines(self, run: str) -> list[Difference]:
        """A run's differences over all questions, one of each metric, truthfulness first; without costs."""
        by_metric: dict[str, Difference] = {}
        for d in self.differences:
            if d.run == run and d.stratum == ALL and d.difference and not d.measure.startswith("cost/"):
                by_metric.setdefault(d.measure.partition("/")[0], d)
        return sorted(by_metric.values(), key=lambda d: d.measure != TRUTH)

    def sentence(self, run: str) -> str:
        """A run against the baseline in words: by truthfulness, if that was measured, by what else differs beyond
        chance, and in tokens."""
        lead, *others = self.headlines(run) or (None,)
        clauses = []
        if lead and lead.difference:
            of_truth, interval, value = lead.measure == TRUTH, lead.difference.interval, lead.difference.value
            better, worse = ("more truthful", "less truthful") if of_truth else ("better", "worse")
            degree = {"better": better, "worse": worse, "": f"no {better}"}[lead.verdict]
            if not lead.verdict and value and (value > 0) == lead.more_is_better:
                degree = f"not clearly {better}"
            elif not lead.verdict and of_truth and lead.is_lower:
                degree = f"perhaps {worse}"
            by = "" if of_truth else f" by {short_name(lead.measure)}"
            shown = format_estimate(lead.difference, signed=True) if interval else format_value(value, signed=True)
            than = f"than {self.baseline}{by} ({shown}, {lead.n} question{'s' * (lead.n != 1)})"
            if lead.verdict == "" and lead.n < fewest_questions():
                return f"Too few questions to tell if {run} is {better} {than}"
            clauses.append(f"is {degree} {than}")
        for verdict in ("better", "worse"):
            if names := [short_name(d.measure) for d in others if d.verdict == verdict]:
                clauses.append(f"is {verdict} by {' and '.join(names)}")
        tokens = next((d for d in self.differences if (d.run, d.stratum, d.measure) == (run, ALL, TOKENS)), None)
        if tokens and tokens.difference:
            more, size = tokens.difference.value > 0, f"{abs(tokens.difference.value):,.0f}"
            clauses.append(
                f"takes {size} {'more' if more else 'fewer'} tokens an answer" if tokens.verdict
                else "does not clearly differ in tokens"
            )  # fmt: skip
        joined = f"{', '.join(clauses[:-1])} and {clauses[-1]}" if len(clauses) > 1 else "".join(clauses)
        return f"{run} {joined or f'has no value to compare with {self.baseline}'}"

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
    grades: Grades | None = None,
) -> RunComparison:
    """Compare runs with one of them on the questions that they share, perhaps also by people's grades of some answers.

    Of each metric one measure is tested: its score, or the measure that has the metric's name, or else the first that
    is asked for. The others are measured from the same answers and judgments, and are shown without a verdict. p-values
    are corrected for all tests of a family: of metrics over all questions, of metrics by type or subset, and of costs.
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
    differences = []
    for row in rows:
        fewer = len(row.answered.base) < len(row.pair.base)
        differences.append(
            Difference(
                **{**vars(verdicts[id(row)]), "more_is_better": higher_is_better(row.measure)},
                measure=row.measure, run=row.run, stratum=row.stratum, left_out=row.left_out,
                answered=estimate_difference(row.answered, seed=seed) if fewer else None,
            )
        )  # fmt: skip
    named = [(labels[baseline], labels[i]) for i in others]
    conflicting = (disagreements(first, runs[i], two, seed) for i, two in zip(others, named, strict=True))
    warnings = [str(line) for lines in conflicting for line in lines]
    tallies = {labels[i]: runs[i].tally for i in (baseline, *others)}
    judges = [measure for measure, tested in chosen.items() if tested and not measure.startswith("cost/")]
    return RunComparison(
        baseline=labels[baseline], runs=tuple(labels[i] for i in others), differences=tuple(differences),
        conflicts=conflicts, tallies=tallies, warnings=tuple(warnings),
        graded=tuple(graded_differences(runs, labels, baseline, judges, grades)) if grades else (),
    )  # fmt: skip


def disagreements(baseline: Run, run: Run, labels: tuple[str, str], seed: int = 0) -> list[Disagreement]:
    """The disagreements of two runs: a judge prefers one, and the other is more truthful or has more right answers.

    Both differences are beyond chance, in opposite directions. The result does not depend on which run is the
    baseline, and is empty if truthfulness was not measured.
    """

    def test(first: Run, second: Run, measures: Collection[str]) -> Iterator[tuple[str, Verdict]]:
        tested = held_out_test([pair_values(first, second, measure) for measure in measures], seed=seed)
        return zip(measures, tested, strict=True)

    conflicts = []
    for first, second, named in ((baseline, run, labels), (run, baseline, labels[::-1])):
        judged = {m: v for m, v in test(first, second, _JUDGED) if v.verdict == "better"}
        for truth, lost in test(first, second, _TRUTHS):
            if judged and lost.verdict == "worse" and lost.difference:
                gained = {m: v.difference for m, v in judged.items() if v.difference}
                conflicts.append(Disagreement(named[1], named[0], gained, truth, lost.difference))
    return conflicts


def order_measures(measures: Iterable[str]) -> list[str]:
    """Measures as they are shown: truthfulness first, the others in their order, then costs."""
    return [*sorted(measures, key=lambda m: not m.startswith(f"{TRUTHFULNESS}/")), *COSTS]


def short_name(measure: str) -> str:
    """A measure as it is shown where each metric has one: by the metric's name, if it is its score or called like it.

    Example:
        >>> [short_name(m) for m in ("linkage/score", "truthfulness/truthfulness", "linkage/mrr")]
        ['linkage', 'truthfulness', 'linkage/mrr']
    """
    metric, _, name = measure.partition("/")
    return metric if name in (metric, "score") else measure


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
    for name in (FINGERPRINT, *shared):
        if ours.get(name) != theirs.get(name):
            values = (settings.get(name) for settings in (theirs, ours))
            shown = (v[:12] if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values)
            questions.append(f"another {name} ({', not '.join(shown)})")
    return questions


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
    if stratum.by == "type":
        return question.question_type == stratum.name
    return stratum.by == "all" or question.subset == stratum.name


class _Row(NamedTuple):
    measure: str
    run: str
    stratum: Stratum
    pair: Pair
    answered: Pair
    left_out: dict[str, int]


def _rows(baseline: Run, run: Run, label: str, measures: Iterable[str], by: Sequence[By]) -> Iterator[_Row]:
    ours, theirs = ({q.id: q for q in r.questions} for r in (baseline, run))
    questions = {**theirs, **ours}
    parts = {s: [i for i, q in questions.items() if belongs(q, s)] for s in strata(list(questions.values()), by)}
    same = held_out.shared_ids(baseline, run)
    for measure in measures:
        first, second = baseline.values(measure), run.values(measure)
        paired = same & first.keys() & second.keys()
        for part, ids in parts.items():
            pair, answered = (pair_values(baseline, run, measure, ids, answered=only) for only in (False, True))
            reasons = Counter(
                _missing_reason(measure, ((ours.get(i), i in first), (theirs.get(i), i in second)))
                for i in ids
                if i not in paired
            )
            left_out = {reason: reasons[reason] for reason in _REASONS if reason in reasons}
            yield _Row(measure, label, part, pair, answered, left_out)


def _missing_reason(measure: str, sides: Iterable[tuple[QuestionResult | None, bool]]) -> str:
    """The first reason, in the order of `_REASONS`, why a question lacks a value in one run or both."""
    metric, reasons = measure.partition("/")[0], []
    for question, has_value in sides:
        result = question.metrics.get(metric) if question else None
        if has_value:
            continue
        if question and question.answer is None:
            reasons.append(NO_ANSWER)
        elif result is None:
            reasons.append(NOT_IN_BOTH)
        else:
            reasons.append(JUDGE_FAILED if result.measurable and result.score is None else NOT_MEASURABLE)
    return min(reasons, key=_REASONS.index, default=NOT_IN_BOTH)  # the two have other questions under this id


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
    shared = order_measures(m for known in of_metric.values() for m in known)
    chosen: dict[str, None] = dict.fromkeys(() if names else shared)
    for name in names or ():
        matching = [m for m in shared if m == name or m.startswith(f"{name}/")]
        if name.endswith("/score") and any(m.startswith(name.removesuffix("score")) for m in shared):
            matching = [name]
        if not matching:
            raise InputError(f"no two runs to compare have measure '{name}'", names_hint("Measures", name, shared))
        chosen |= dict.fromkeys(matching)
    tested = {m.partition("/")[0]: m for m in reversed(list(chosen))}  # the first that is asked for,
    tested |= {metric: known[0] for metric, known in of_metric.items() if known[0] in chosen}  # but for the primary one
    failed = any(run.tally.failed for run in runs)
    return {
        m: m.startswith("cost/") or (tested[m.partition("/")[0]] == m and not (failed and value_of_failure(m) is None))
        for m in chosen
    }
