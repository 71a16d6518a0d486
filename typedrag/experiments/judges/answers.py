"""Check judges of answers on labelled answers, preferences and fabrications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Answered, Estimate
from typedrag.datasets import AnswerKind, MadeAnswer
from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.experiments.judges.judging import Agreement, JudgeEvalContext, JudgeReport, Scorer, defined
from typedrag.metrics import Metric
from typedrag.metrics.arithmetic.agreement import kendall, pairwise_order_accuracy, spearman
from typedrag.metrics.arithmetic.ranks import Convention
from typedrag.metrics.judges.grades import Correctness, Equivalence, Relevance
from typedrag.metrics.judges.human_labels import LabelledAnswer, labelled_answers
from typedrag.metrics.judges.linkage import QUALITY, Linkage, draw_references
from typedrag.metrics.judges.pairwise import PairwiseJudge, Verdicts, compare_in_both_orders, points_of_first
from typedrag.metrics.judges.truthfulness import Truthfulness
from typedrag.metrics.similarity import BERTScore, Similarity
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.retrieval.rerank.rerankers import BI_ENCODER


class JudgeScore(NamedTuple):
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
    readings: tuple[JudgeScore, ...]

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


def baselines(bench: JudgeEvalContext) -> Iterator[Judge]:
    """Yield the metrics of single answers that ask no LM.

    BERTScore uses MiniLM: bert-score's default model for English has 1.4 GB.
    """
    yield Judge(
        "similarity",
        Similarity(),
        (
            JudgeScore("similarity to the question", "question"),
            JudgeScore("similarity to the best reference", "reference"),
        ),
    )
    yield Judge(
        "BERTScore",
        BERTScore(model=BI_ENCODER),
        (JudgeScore("BERTScore", "f1"), JudgeScore("BERTScore, recall", "recall")),
    )
    yield coverage(None, bench)
    yield Judge(COMBINED, Linkage(make="combined"), (JudgeScore(COMBINED, QUALITY),))


def by_support() -> Judge:
    """Truthfulness without gold answers: by the support of an answer's sentences in good references."""
    name = "truthfulness, by support"
    return Judge(name, Truthfulness(make="embedding"), (JudgeScore(name, "truthfulness"),))


def lm_judges(scorer: Scorer, bench: JudgeEvalContext) -> Iterator[Judge]:
    """Yield the metrics of single answers that ask an LM."""
    for convention, worst in ((Convention.TYPED_RAG, "n"), (Convention.LINKAGE, "n + 1")):
        name = f"LINKAGE, worst rank {worst}"
        metric = Linkage(scorer.lm, convention=convention, seed=bench.settings.seed)
        yield Judge(
            name,
            metric,
            (JudgeScore(f"{name}, single rank", "rank", -1), JudgeScore(f"{name}, expected rank", "expected_rank", -1)),
        )
    for grade in (Relevance, Equivalence, Correctness):
        yield Judge(grade.name, grade(scorer.lm), (JudgeScore(grade.name, "grade"),))
    yield coverage(scorer, bench)


def coverage(scorer: Scorer | None, bench: JudgeEvalContext) -> Judge:
    """Sub-question coverage, judged by similarity: of the examples' own sub-questions without a scorer, else of those
    that the scorer writes and types once for all answers to a question."""
    metric = SubQuestionCoverage(scorer.lm if scorer else None, passages=False, cite="similarity")
    by = ", of the example's sub-questions" if scorer is None else ""
    return Judge(
        "coverage", metric, (JudgeScore(f"coverage, core{by}", "core"), JudgeScore(f"coverage, rating{by}", "rating"))
    )


def preferences(
    bench: JudgeEvalContext, scorer: Scorer, pairs: Sequence[Pair]
) -> tuple[list[Pair], dict[str, list[float]]]:
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
    return int(hash_of(f"{pair.better}:{pair.worse}"), 16) % 2 == 0


def check_answers(bench: JudgeEvalContext) -> JudgeReport:
    """Check the agreement of judges of answers with the labels of a dataset's references."""
    dataset, settings = bench.dataset, bench.settings
    examples = [e for e in dataset.examples if _is_measurable(e)]
    drawn = bench.draw(examples)
    cases = [case for e in drawn for case in labelled_answers(e, settings.seed)[: settings.candidates]]
    tested = {e.id for e in dataset.split("test" if dataset.name in TRAINED_ON else "all")}
    rows: list[Agreement] = []
    for judge in baselines(bench):
        shown = [case for case in cases if judge.name != COMBINED or case.example.id in tested]
        rows += _scored(bench, judge, None, shown)
    for scorer in bench.scorers:
        rows += [row for judge in lm_judges(scorer, bench) for row in _scored(bench, judge, scorer, cases)]
        rows += _compared(bench, scorer, _pairs(cases))
    left_out = len(dataset.examples) - len(examples)
    paragraphs = (
        f"{len(cases)} candidates of {len(drawn)} questions, at most {settings.candidates} a question, drawn "
        "from the labelled answers that are not among LINKAGE's references."
        + (f" {left_out} questions whose answers all have one label are left out." if left_out else ""),
        "Correlations are over all candidates; pairs are two candidates for one question with different labels, and a "
        "judge that cannot tell has half a point. The pairwise judge, which asks twice a pair, sees of a question's "
        "pairs those of neighbours in the order of the draw. Intervals resample questions. What asks "
        "no LM sees the other labelled answers too, but one of each label."
        + (f" {COMBINED}, was trained, so it is shown those of test alone." if dataset.name in TRAINED_ON else ""),
    )
    return JudgeReport(rows, paragraphs)


def check_preferences(bench: JudgeEvalContext) -> JudgeReport:
    """Check the agreement of the pairwise judge with people's preferences among two answers."""
    pairs = []
    for example in bench.draw(bench.dataset.examples):
        better, worse = example.answers_compared if example.preference > 0 else example.answers_compared[::-1]
        pairs.append(Pair(example.question, better, worse, group_of(example)))
    rows = [row for scorer in bench.scorers for row in _compared(bench, scorer, pairs)]
    return JudgeReport(rows, (f"{len(pairs)} pairs of answers. A tie has half a point. Intervals resample questions.",))


def _is_measurable(example: dspy.Example) -> bool:
    try:
        return bool(draw_references(example))
    except NotMeasurable:
        return False


def _scored(
    bench: JudgeEvalContext, judge: Judge, scorer: Scorer | None, cases: Sequence[LabelledAnswer]
) -> Iterator[Agreement]:
    def measure(case: LabelledAnswer) -> Mapping[str, float]:
        return judge.measure(case.example, dspy.Prediction(answer=case.candidate.text))

    judged = bench.ask(judge.name, scorer, measure, [case for case in cases if judge.measures(case.example)])
    for reading in judge.readings:
        read = [(case, values[reading.measure]) for case, values in judged.judgments if reading.measure in values]
        if not read and not judged.failures:
            continue
        scores = [reading.sign * value for _, value in read]
        labels = [case.candidate.label for case, _ in read]
        groups = [group_of(case.example) for case, _ in read]
        agree: dict[str, Callable[..., Estimate | None]] = {
            "spearman": spearman,
            "kendall": kendall,
            "pairs_ordered": pairwise_order_accuracy,
        }
        measures = {name: by(scores, labels, groups=groups, seed=bench.settings.seed) for name, by in agree.items()}
        name = scorer.name if scorer else ""
        yield Agreement(reading.judge, name, len(scores), len(judged.failures), defined(measures))


def _pairs(cases: Sequence[LabelledAnswer]) -> list[Pair]:
    """The pairs of each candidate with the next one for the same question, if their labels differ."""
    pairs = []
    for case, other in pairwise(cases):
        worse, better = sorted((case.candidate, other.candidate), key=lambda r: r.label)
        if case.example.id == other.example.id and worse.label < better.label:
            pairs.append(Pair(case.example.question, better.text, worse.text, group_of(case.example)))
    return pairs


def _compared(bench: JudgeEvalContext, scorer: Scorer, pairs: Sequence[Pair]) -> Iterator[Agreement]:
    judged, readings = preferences(bench, scorer, pairs)
    groups = [pair.group for pair in judged]
    for name, points in readings.items():
        measures = defined({"pairs_ordered": bench.mean(points, groups)})
        yield Agreement(name, scorer.name, len(points), len(pairs) - len(judged), measures)


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


def check_fabrications(bench: JudgeEvalContext) -> JudgeReport:
    """Check the share of right answers that each judge puts above answers of each wrong kind."""
    drawn = bench.draw(bench.dataset.examples)
    rows = [row for judge in baselines(bench) for row in _score_fabrications(bench, judge, None, drawn)]
    without_gold = [example.without("answers") for example in drawn]  # gold answers would make it right by construction
    rows += _score_fabrications(bench, by_support(), None, without_gold)
    for scorer in bench.scorers:
        rows += [row for judge in lm_judges(scorer, bench) for row in _score_fabrications(bench, judge, scorer, drawn)]
        rows += _compare_fabrications(bench, scorer, drawn)
    paragraph = (
        f"The right answers to {len(drawn)} questions, each beside answers of other kinds: how often it is judged the "
        "better one. A judge that cannot tell has half a point. Intervals resample questions. "
        f"{COMBINED}, was trained on fabrications of Wiki-NFQA's train and validation: those of test tell."
    )
    return JudgeReport(rows, (paragraph,))


def _score_fabrications(
    bench: JudgeEvalContext, judge: Judge, scorer: Scorer | None, examples: Sequence[dspy.Example]
) -> Iterator[Agreement]:
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
                groups[case.example.id] = group_of(case.example)
        comparisons = [
            _Comparison(kind, groups[key], _points(of_kinds[AnswerKind.RIGHT], score))
            for key, of_kinds in scores.items()
            for kind, score in of_kinds.items()
            if kind is not AnswerKind.RIGHT and AnswerKind.RIGHT in of_kinds
        ]
        if comparisons:
            measures, name = _measures(comparisons, bench), scorer.name if scorer else ""
            yield Agreement(reading.judge, name, len(comparisons), len(judged.failures), measures)


def _compare_fabrications(
    bench: JudgeEvalContext, scorer: Scorer, examples: Sequence[dspy.Example]
) -> Iterator[Agreement]:
    kinds: dict[Pair, AnswerKind] = {}
    for example in examples:
        right, *others = example.candidates
        for other in others:
            kinds[Pair(example.question, right.text, other.text, group_of(example))] = other.kind
    judged, readings = preferences(bench, scorer, list(kinds))
    for name, points in readings.items():
        comparisons = [_Comparison(kinds[pair], pair.group, p) for pair, p in zip(judged, points, strict=True)]
        measures = _measures(comparisons, bench)
        yield Agreement(name, scorer.name, len(points), len(kinds) - len(judged), measures)


def _points(right: float, other: float) -> float:
    return 0.5 if right == other else float(right > other)


def _measures(comparisons: Sequence[_Comparison], bench: JudgeEvalContext) -> dict[str, Estimate]:
    """The mean points against all fabrications, and against each kind."""
    chosen = {
        FABRICATED: [c for c in comparisons if c.kind.fabricated],
        **{kind.value: [c for c in comparisons if c.kind is kind] for kind in AnswerKind},
    }
    return defined({name: bench.mean([c.points for c in of], [c.group for c in of]) for name, of in chosen.items()})
