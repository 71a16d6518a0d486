"""Judges of answers against labelled answers: LINKAGE, grades, the pairwise judge, and similarity beside them.

For each question one answer of each label is drawn as LINKAGE's reference, as a run would draw it;
of the other labelled answers some are candidates, which every judge scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of, sample
from typedrag.datasets.splits import group_of
from typedrag.errors import NotMeasurable
from typedrag.experiments.judges.records import Agreement, Bench, Check, Scorer
from typedrag.metrics import Metric
from typedrag.metrics.agreement import kendall, pairwise_order_accuracy, spearman
from typedrag.metrics.estimate import grouped_mean_estimate
from typedrag.metrics.grades import Correctness, Equivalence, Relevance
from typedrag.metrics.human_labels import LabelledAnswer, labelled_answers
from typedrag.metrics.linkage import Linkage, draw_references
from typedrag.metrics.pairwise import PairwiseJudge, Verdicts, compare_in_both_orders, points_of_first
from typedrag.metrics.ranks import Convention
from typedrag.metrics.similarity import Similarity


class _Reading(NamedTuple):
    """What of a metric's result is compared with the labels."""

    judge: str
    measure: str
    sign: int = 1
    """-1 where less is better."""


@dataclass(frozen=True, slots=True)
class _Pair:
    question: str
    better: str
    worse: str
    group: str


def check_answers(dataset: Dataset, bench: Bench, about: str) -> Check:
    """How judges of answers agree with the labels of a dataset's references.

    Args:
        dataset: Its references have labels.
        bench: Where judges are asked.
        about: What the labels are, in a sentence or two.
    """
    bench = bench.for_dataset(dataset.name)
    examples = [e for e in dataset.examples if _is_measurable(e)]
    drawn = sample(examples, bench.settings.limit or len(examples), bench.settings.seed) if examples else []
    settings = bench.settings
    cases = [case for e in drawn for case in labelled_answers(e, settings.seed)[: settings.candidates]]
    rows = [*_scored(bench, "similarity", None, Similarity(), _SIMILARITIES, cases)]
    for scorer in bench.scorers:
        for name, metric, readings in _judges(scorer, bench):
            rows += _scored(bench, name, scorer, metric, readings, cases)
        rows += _compared(bench, scorer, _pairs(cases))
    left_out = len(dataset.examples) - len(examples)
    said = (
        about,
        f"{len(cases)} candidates of {len(drawn)} questions, at most {bench.settings.candidates} a question, drawn "
        "from the labelled answers that are not among LINKAGE's references."
        + (f" {left_out} questions whose answers all have one label are left out." if left_out else ""),
        "Correlations are over all candidates; pairs are two candidates for one question with different labels, and a "
        "judge that cannot tell has half a point. The pairwise judge, which asks twice a pair, sees of a question's "
        "pairs those of neighbours in the order of the draw. Intervals resample questions.",
    )
    return Check("Answers", said, dataset.name, dataset.fingerprint, tuple(rows), tuple(bench.costs))


def check_preferences(dataset: Dataset, bench: Bench, about: str) -> Check:
    """How the pairwise judge agrees with people's preferences among two answers.

    Args:
        dataset: Its examples have `answers_compared` and a `preference`.
        bench: Where judges are asked.
        about: What the labels are, in a sentence or two.
    """
    bench = bench.for_dataset(dataset.name)
    examples = sample(dataset.examples, bench.settings.limit or len(dataset.examples), bench.settings.seed)
    pairs = []
    for example in examples:
        better, worse = example.answers_compared if example.preference > 0 else example.answers_compared[::-1]
        pairs.append(_Pair(example.question, better, worse, group_of(example)))
    rows = [row for scorer in bench.scorers for row in _compared(bench, scorer, pairs)]
    said = (about, f"{len(pairs)} pairs of answers. A tie has half a point. Intervals resample questions.")
    return Check("Preferences", said, dataset.name, dataset.fingerprint, tuple(rows), tuple(bench.costs))


_SIMILARITIES = (
    _Reading("similarity to the question", "question"),
    _Reading("similarity to the best reference", "reference"),
)


def _judges(scorer: Scorer, bench: Bench) -> Iterator[tuple[str, Metric, tuple[_Reading, ...]]]:
    for convention, worst in ((Convention.TYPED_RAG, "n"), (Convention.LINKAGE, "n + 1")):
        name = f"LINKAGE, worst rank {worst}"
        metric = Linkage(scorer.lm, bench.judgments, convention=convention, seed=bench.settings.seed)
        yield (
            name,
            metric,
            (_Reading(f"{name}, single rank", "rank", -1), _Reading(f"{name}, expected rank", "expected_rank", -1)),
        )
    for grade in (Relevance, Equivalence, Correctness):
        yield grade.name, grade(scorer.lm, bench.judgments), (_Reading(grade.name, "grade"),)


def _is_measurable(example: dspy.Example) -> bool:
    try:
        return bool(draw_references(example))
    except NotMeasurable:
        return False


def _scored(
    bench: Bench,
    name: str,
    scorer: Scorer | None,
    metric: Metric,
    readings: Sequence[_Reading],
    cases: Sequence[LabelledAnswer],
) -> Iterator[Agreement]:
    def measure(case: LabelledAnswer) -> dict[str, float]:
        return metric(case.example, dspy.Prediction(answer=case.candidate.text)).measures

    judged = bench.ask(name, scorer, measure, cases)
    labels = [case.candidate.label for case, _ in judged.judgments]
    groups = [group_of(case.example) for case, _ in judged.judgments]
    for reading in readings:
        scores = [reading.sign * said[reading.measure] for _, said in judged.judgments]
        found = {
            measure: agree(scores, labels, groups=groups, seed=bench.settings.seed)
            for measure, agree in (
                ("spearman", spearman),
                ("kendall", kendall),
                ("pairs_ordered", pairwise_order_accuracy),
            )
        }
        measures = {name: estimate for name, estimate in found.items() if estimate}
        yield Agreement(reading.judge, scorer.name if scorer else "", len(scores), len(judged.failures), measures)


def _pairs(cases: Sequence[LabelledAnswer]) -> list[_Pair]:
    """Each candidate with the next one for the same question, where their labels differ."""
    pairs = []
    for case, other in pairwise(cases):
        worse, better = sorted((case.candidate, other.candidate), key=lambda r: r.label)
        if case.example is other.example and worse.label < better.label:
            pairs.append(_Pair(case.example.question, better.text, worse.text, group_of(case.example)))
    return pairs


def _compared(bench: Bench, scorer: Scorer, pairs: Sequence[_Pair]) -> Iterator[Agreement]:
    judge = PairwiseJudge()

    def compare(pair: _Pair) -> Verdicts:
        return compare_in_both_orders(judge, bench.judgments, pair.question, pair.better, pair.worse)

    judged = bench.ask("pairwise", scorer, compare, pairs)
    groups = [pair.group for pair, _ in judged.judgments]
    readings = {
        "pairwise, both orders": [verdicts.outcome.points for _, verdicts in judged.judgments],
        "pairwise, one order": [
            points_of_first(verdicts.forward) if _better_is_first(pair) else 1 - points_of_first(verdicts.backward)
            for pair, verdicts in judged.judgments
        ],
    }
    likelier = [v.likelier for _, v in judged.judgments if v.likelier is not None]
    if len(likelier) == len(groups):
        readings["pairwise, both orders, the likelier"] = likelier
    for name, points in readings.items():
        estimate = grouped_mean_estimate(points, groups, bench.settings.seed)
        measures = {"pairs_ordered": estimate} if estimate else {}
        yield Agreement(name, scorer.name, len(points), len(judged.failures), measures)


def _better_is_first(pair: _Pair) -> bool:
    """By lot, so that a judge that likes a place gains nothing by it."""
    return int(hash_of(f"{pair.better}:{pair.worse}"), 16) % 2 == 0
