"""Check judges on fabrications: the share of right answers that beat answers which only sound right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import dspy

from typedrag.core.records import Answered, Estimate
from typedrag.datasets import AnswerKind, MadeAnswer
from typedrag.datasets.dataset import question_group
from typedrag.experiments.judges.readings import COMBINED, Judge, Pair, by_support, judges_of, preferences, yardsticks
from typedrag.experiments.judges.records import Agreement, Bench, Found, Scorer, defined

FABRICATED = "fabricated"
"""All kinds of fabrications together."""


class _Case(NamedTuple):
    """An answer to be judged, as if a program had given it."""

    example: dspy.Example
    candidate: MadeAnswer


class _Comparison(NamedTuple):
    """The points of the right answer to a question against one of another kind: 1 if better, 0.5 if level, else 0."""

    kind: AnswerKind
    group: str
    points: float


def check_fabrications(bench: Bench) -> Found:
    """Check the share of right answers that each judge puts above answers of each wrong kind."""
    drawn = bench.draw(bench.dataset.examples)
    rows = [row for judge in yardsticks(bench) for row in _scored(bench, judge, None, drawn)]
    without_gold = [example.without("answers") for example in drawn]  # gold answers would make it right by construction
    rows += _scored(bench, by_support(), None, without_gold)
    for scorer in bench.scorers:
        rows += [row for judge in judges_of(scorer, bench) for row in _scored(bench, judge, scorer, drawn)]
        rows += _compared(bench, scorer, drawn)
    paragraph = (
        f"The right answers to {len(drawn)} questions, each beside answers of other kinds: how often it is judged the "
        "better one. A judge that cannot tell has half a point. Intervals resample questions. "
        f"{COMBINED}, was trained on fabrications of Wiki-NFQA's train and validation: those of test tell."
    )
    return Found(rows, (paragraph,))


def _scored(bench: Bench, judge: Judge, scorer: Scorer | None, examples: Sequence[dspy.Example]) -> Iterator[Agreement]:
    def measure(case: _Case) -> Mapping[str, float]:
        silent = case.candidate.kind is AnswerKind.NOTHING_FOUND
        answered = Answered.NOTHING if silent else Answered.PASSAGES
        prediction = dspy.Prediction(answer=case.candidate.text, answered=answered)
        return judge.measure(case.example, prediction)

    cases = [_Case(e, candidate) for e in examples if judge.measures(e) for candidate in e.candidates]
    judged = bench.ask(judge.name, scorer, measure, cases)
    for reading in judge.readings:
        scores: dict[str, dict[AnswerKind, float]] = defaultdict(dict)
        groups = {}
        for case, values in judged.judgments:
            if reading.measure in values:
                scores[case.example.id][case.candidate.kind] = reading.sign * values[reading.measure]
                groups[case.example.id] = question_group(case.example)
        comparisons = [
            _Comparison(kind, groups[key], _points(of_kinds[AnswerKind.RIGHT], score))
            for key, of_kinds in scores.items()
            for kind, score in of_kinds.items()
            if kind is not AnswerKind.RIGHT and AnswerKind.RIGHT in of_kinds
        ]
        if comparisons:
            measures, name = _measures(comparisons, bench), scorer.name if scorer else ""
            yield Agreement(reading.judge, name, len(comparisons), len(judged.failures), measures)


def _compared(bench: Bench, scorer: Scorer, examples: Sequence[dspy.Example]) -> Iterator[Agreement]:
    kinds: dict[Pair, AnswerKind] = {}
    for example in examples:
        right, *others = example.candidates
        for other in others:
            kinds[Pair(example.question, right.text, other.text, question_group(example))] = other.kind
    judged, readings = preferences(bench, scorer, list(kinds))
    for name, points in readings.items():
        comparisons = [_Comparison(kinds[pair], pair.group, p) for pair, p in zip(judged, points, strict=True)]
        measures = _measures(comparisons, bench)
        yield Agreement(name, scorer.name, len(points), len(kinds) - len(judged), measures)


def _points(right: float, other: float) -> float:
    return 0.5 if right == other else float(right > other)


def _measures(comparisons: Sequence[_Comparison], bench: Bench) -> dict[str, Estimate]:
    """The mean points against all fabrications, and against each kind."""
    chosen = {
        FABRICATED: [c for c in comparisons if c.kind.fabricated],
        **{kind.value: [c for c in comparisons if c.kind is kind] for kind in AnswerKind},
    }
    return defined({name: bench.mean([c.points for c in of], [c.group for c in of]) for name, of in chosen.items()})
