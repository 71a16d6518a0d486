"""Readings of judges: the measures of each judge that are compared with labels of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.datasets.dataset import text_hash
from typedrag.experiments.judges.records import Bench, Scorer
from typedrag.metrics import Metric
from typedrag.metrics.judges.grades import Correctness, Equivalence, Relevance
from typedrag.metrics.judges.linkage import QUALITY, Convention, Linkage
from typedrag.metrics.judges.preference import PairwiseJudge, Verdicts, compare_in_both_orders, points_of_first
from typedrag.metrics.judges.truthfulness import Truthfulness
from typedrag.metrics.similarity import BERTScore, Similarity
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.retrieval.rerank.rerankers import BI_ENCODER


class Reading(NamedTuple):
    """A measure of a metric that is compared with labels."""

    judge: str
    measure: str
    sign: int = 1
    """-1 if less is better."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A better and a worse answer to a question, and the group that the pair is resampled with."""

    question: str
    better: str
    worse: str
    group: str


COMBINED = "LINKAGE, combined"
TRAINED_ON = ("antique", "wiki-nfqa")
"""The datasets on whose train and validation splits the combined judge was trained."""


class Judge(NamedTuple):
    """A metric of single answers, and its readings.

    Attributes:
        name: The name in costs and progress.
        metric: The metric.
        readings: The measures to compare; an answer without a measure is left out of its reading.
    """

    name: str
    metric: Metric
    readings: tuple[Reading, ...]

    def measures(self, example: dspy.Example) -> bool:
        """True if answers to an example can be measured."""
        try:
            self.metric.require(example)
        except NotMeasurable:
            return False
        return True

    def measure(self, example: dspy.Example, prediction: dspy.Prediction) -> Mapping[str, float]:
        """The measures of an answer; none if it cannot be measured, as without references."""
        try:
            measures: Mapping[str, float] = self.metric(example, prediction).measures
        except NotMeasurable:
            return {}
        return measures


def yardsticks(bench: Bench) -> Iterator[Judge]:
    """Yield the metrics of single answers that ask no LM.

    BERTScore uses MiniLM: bert-score's default model for English has 1.4 GB.
    """
    yield Judge(
        "similarity",
        Similarity(),
        (Reading("similarity to the question", "question"), Reading("similarity to the best reference", "reference")),
    )
    yield Judge(
        "BERTScore", BERTScore(model=BI_ENCODER), (Reading("BERTScore", "f1"), Reading("BERTScore, recall", "recall"))
    )
    yield coverage(None, bench)
    yield Judge(COMBINED, Linkage(make="combined"), (Reading(COMBINED, QUALITY),))


def by_support() -> Judge:
    """Truthfulness without gold answers: by the support of an answer's sentences in good references."""
    name = "truthfulness, by support"
    return Judge(name, Truthfulness(make="embedding"), (Reading(name, "truthfulness"),))


def judges_of(scorer: Scorer, bench: Bench) -> Iterator[Judge]:
    """Yield the metrics of single answers that ask an LM."""
    for convention, worst in ((Convention.TYPED_RAG, "n"), (Convention.LINKAGE, "n + 1")):
        name = f"LINKAGE, worst rank {worst}"
        metric = Linkage(scorer.lm, convention=convention, seed=bench.settings.seed)
        yield Judge(
            name,
            metric,
            (Reading(f"{name}, single rank", "rank", -1), Reading(f"{name}, expected rank", "expected_rank", -1)),
        )
    for grade in (Relevance, Equivalence, Correctness):
        yield Judge(grade.name, grade(scorer.lm), (Reading(grade.name, "grade"),))
    yield coverage(scorer, bench)


def coverage(scorer: Scorer | None, bench: Bench) -> Judge:
    """Sub-question coverage, judged by similarity: of the examples' own sub-questions without a scorer, else of those
    that the scorer writes and types once for all answers to a question."""
    metric = SubQuestionCoverage(scorer.lm if scorer else None, passages=False, cite="similarity")
    by = ", of the example's sub-questions" if scorer is None else ""
    return Judge(
        "coverage", metric, (Reading(f"coverage, core{by}", "core"), Reading(f"coverage, rating{by}", "rating"))
    )


def preferences(bench: Bench, scorer: Scorer, pairs: Sequence[Pair]) -> tuple[list[Pair], dict[str, list[float]]]:
    """The pairs that the pairwise judge has judged, and by each reading the points of their better answers.

    With both orders, contradicting verdicts give half a point; the reading of the likelier answer needs the server's
    token probabilities.
    """
    judge = PairwiseJudge()

    def compare(pair: Pair) -> Verdicts:
        return compare_in_both_orders(judge, pair.question, pair.better, pair.worse)

    judged = bench.ask("pairwise", scorer, compare, pairs)
    readings = {
        "pairwise, both orders": [verdicts.outcome.points for _, verdicts in judged.judgments],
        "pairwise, one order": [
            points_of_first(verdicts.forward) if _better_is_first(pair) else 1 - points_of_first(verdicts.backward)
            for pair, verdicts in judged.judgments
        ],
    }
    likelier = [v.likelier for _, v in judged.judgments if v.likelier is not None]
    if len(likelier) == len(judged.judgments):
        readings["pairwise, both orders, the likelier"] = likelier
    return [pair for pair, _ in judged.judgments], readings


def _better_is_first(pair: Pair) -> bool:
    """True if the better answer is shown first; a random choice, so that a judge's bias for a place does not matter."""
    return int(text_hash(f"{pair.better}:{pair.worse}"), 16) % 2 == 0
