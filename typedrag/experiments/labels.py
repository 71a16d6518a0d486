"""People's grades of the answers of runs: their file, the order in which they are asked for, and what they say of runs
with the help of a judge that has scored all answers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.records import Answer, Estimate
from typedrag.datasets.dataset import make_id, text_hash
from typedrag.datasets.reading import Entry, Id, Layout, parse
from typedrag.experiments.held_out import shared_ids
from typedrag.experiments.results import QuestionResult, Run
from typedrag.files.text_files import Journal
from typedrag.metrics.estimate import prediction_powered_mean

Scale = Literal["antique", "right"]
SCALES: Mapping[Scale, Mapping[str, tuple[int, str]]] = {
    "antique": {
        "4": (4, "convincing: it answers the question, and hardly any answer would be better"),
        "3": (3, "an answer, but not a convincing one: there should be much better ones"),
        "2": (2, "no answer, or an unreasonable one, though about the matter"),
        "1": (1, "about something else, or senseless"),
    },
    "right": {"r": (1, "right"), "w": (0, "wrong, or no answer")},
}
"""The keys of grades by scale, best first, with their values and meanings. The first is ANTIQUE's (Hashemi et al. 2020,
table 2)."""


class GradedAnswer(NamedTuple):
    """An answer to a question, whatever runs gave it, by a digest of its text; a failed answer is a blank one."""

    question: str
    answer: str

    @classmethod
    def of(cls, question: QuestionResult) -> "GradedAnswer":
        return cls(question.id, make_id(_written(question)))


def _written(question: QuestionResult) -> str:
    return question.answer.answer.strip() if question.answer else ""


class _Line(Layout):
    question: Id
    answer: Id
    grade: float | None
    scale: Scale = "antique"


class Grades:
    """A file of grades, one a line. The last line on an answer counts, and one without a grade takes it back."""

    def __init__(self, path: Path, scale: Scale | None = None) -> None:
        self._journal, self._grades = Journal(path), dict[GradedAnswer, float]()
        for number, line in enumerate(self._journal, 1):
            row = parse(_Line, Entry(line, f"{path}, line {number}"))
            scale = scale or row.scale
            if row.scale != scale:
                problem = f"{path}, line {number} has a grade of scale '{row.scale}', not '{scale}'"
                raise InputError(problem, "Keep each scale in a file of its own")
            if row.grade not in (None, *(value for value, _ in SCALES[scale].values())):
                raise InputError(
                    f"{path}, line {number}: {row.grade:g} is no grade of scale '{scale}'", "Correct the line"
                )
            self._keep(GradedAnswer(row.question, row.answer), row.grade)
        self.scale: Scale = scale or "antique"
        self.worst = min(value for value, _ in SCALES[self.scale].values())

    def __iter__(self) -> Iterator[GradedAnswer]:
        """Yield the graded answers in the order of their grades."""
        return iter(self._grades)

    def get(self, answer: GradedAnswer) -> float | None:
        return self._grades.get(answer)

    def of_run(self, run: Run) -> dict[str, float]:
        """The grades of a run's answers by the ids of their questions."""
        known = {q.id: self.get(GradedAnswer.of(q)) for q in run.questions}
        return {i: grade for i, grade in known.items() if grade is not None}

    def add(self, answer: GradedAnswer, grade: float | None) -> None:
        """Write a grade at once; None takes it back."""
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        self._journal.append({**answer._asdict(), "grade": grade, "scale": self.scale, "at": at})
        self._keep(answer, grade)

    def _keep(self, answer: GradedAnswer, grade: float | None) -> None:
        self._grades.pop(answer, None)  # the last one given is to be the last one here
        if grade is not None:
            self._grades[answer] = grade


def answers_to_grade(runs: Sequence[Run], seed: int = 0) -> dict[GradedAnswer, tuple[str, Answer | None]]:
    """The questions and answers, None for failed and blank ones, in the order in which they are graded: questions that
    all runs have, at random, so that whoever stops has graded a random part of them; the answers to one question, also
    at random, follow each other, so that runs are compared on it; equal ones are graded once."""
    same = set.intersection(*(shared_ids(runs[0], run) for run in runs))
    by_id: dict[str, dict[GradedAnswer, tuple[str, Answer | None]]] = {}
    for question in (q for run in runs for q in run.questions if q.id in same):
        answer = question.answer if _written(question) else None
        by_id.setdefault(question.id, {})[GradedAnswer.of(question)] = question.question, answer
    return {
        key: by_id[id_][key]
        for id_ in sorted(by_id, key=lambda i: text_hash(f"grade {i}", seed))
        for key in sorted(by_id[id_], key=lambda k: text_hash("/".join(k), seed))
    }


@dataclass(frozen=True, kw_only=True)
class GradedDifference:
    """The mean grades of the baseline and of a run, and their paired difference, by people's grades and by what a judge
    says of the answers that nobody graded; the judge is a measure, or empty. `graded` and `judged` are the questions
    that count for the difference, `correlation` is that of the two kinds of differences."""

    run: str
    judge: str
    graded: int
    judged: int
    baseline: Estimate | None
    other: Estimate | None
    difference: Estimate | None
    correlation: float | None = None


def graded_differences(
    runs: Sequence[Run], labels: Sequence[str], baseline: int, judges: Collection[str], grades: Grades
) -> list[GradedDifference]:
    """The differences of runs from a baseline by people's grades, alone and with each of the judges."""
    rows = []
    for label, run in zip(labels, runs, strict=True):
        if run is runs[baseline]:
            continue
        people = _paired(runs[baseline], run, grades.of_run)
        for judge in ("", *judges):
            scores = _paired(runs[baseline], run, partial(Run.values, measure=judge)) if judge else None
            base, other, difference = map(prediction_powered_mean, people, scores or (None, None, None))
            scored = scores[2] if scores else {}
            both = [(grade, scored[i]) for i, grade in people[2].items() if i in scored]
            counts = {"graded": len(both) if judge else len(people[2]), "judged": len(scored)}
            rows.append(
                GradedDifference(
                    run=label, judge=judge, **counts, baseline=base, other=other, difference=difference,
                    correlation=_correlation(both),
                )
            )  # fmt: skip
    if not any(row.baseline or row.other for row in rows):
        hint = f"Grade them: typedrag label {' '.join(str(run.path) for run in runs)}"
        raise InputError("none of the grades is of an answer of these runs", hint)
    return rows


_Values = dict[str, float]


def _paired(first: Run, run: Run, values_of: Callable[[Run], Mapping[str, float]]) -> tuple[_Values, _Values, _Values]:
    """The mean values of two runs by question, which several ids may have, and the differences where both have one."""
    groups, sides = first.groups, list[_Values]()
    same = shared_ids(first, run)
    for each in (first, run):
        of_question: dict[str, list[float]] = {}
        for i, value in values_of(each).items():
            if i in same:
                of_question.setdefault(groups[i], []).append(value)
        sides.append({question: fmean(values) for question, values in of_question.items()})
    ours, theirs = sides
    return ours, theirs, {i: theirs[i] - ours[i] for i in ours if i in theirs}


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    import numpy as np

    if len(pairs) < 3 or any(len(set(side)) < 2 for side in zip(*pairs, strict=True)):
        return None
    return float(np.corrcoef(np.array(pairs).T)[0, 1])
