"""Check judges of answers: LINKAGE, grades, the pairwise judge, and similarity for comparison.

For each question with labelled answers, one of each label is drawn as LINKAGE's reference, as a run would draw it;
some of the others are candidates, which every judge scores. Fabrications are put beside right answers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Answered, Estimate
from typedrag.datasets import AnswerKind, MadeAnswer
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.experiments.judges.judging import Agreement, JudgeEvalContext, JudgeReport, Scorer, defined
from typedrag.metrics import Metric
from typedrag.metrics.estimate import kendall, pairwise_order_accuracy, spearman
from typedrag.metrics.judges.grades import Correctness, Equivalence, Relevance
from typedrag.metrics.judges.human_labels import LabelledAnswer, labelled_answers
from typedrag.metrics.judges.linkage import QUALITY, Convention, Linkage, draw_references
from typedrag.metrics.judges.preference import POINTS_OF_FIRST, PairwiseJudge, compare_in_both_orders
from typedrag.metrics.judges.truthfulness import Truthfulness
from typedrag.metrics.nuggets import Nuggets
from typedrag.metrics.similarity import BERTScore, Similarity
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.retrieval.rerankers import BI_ENCODER

COMBINED = "LINKAGE, combined"
TRAINED_ON = ("antique", "wiki-nfqa")  # on whose train and validation splits the combined judge was trained
FABRICATED = "fabricated"  # all kinds of fabrications together


class Pair(NamedTuple):
    question: str
    better: str
    worse: str
    group: str


class Judge(NamedTuple):
    """A metric of single answers, its name in costs and progress, and by their names in tables the measures to compare
    with labels; a `sign` of -1 says that less of them is better."""

    name: str
    metric: Metric
    scores: Mapping[str, str]
    sign: int = 1

    def measure(self, example: dspy.Example, prediction: dspy.Prediction) -> Mapping[str, float]:
        """The measures of an answer; none if it cannot be measured, as without references."""
        try:
            return self.metric(example, prediction).measures
        except NotMeasurable:
            return {}

    def measures(self, example: dspy.Example) -> bool:
        try:
            self.metric.require(example)
        except NotMeasurable:
            return False
        return True


def baselines() -> Iterator[Judge]:
    """Yield the metrics of single answers that ask no LM; BERTScore uses MiniLM, since its own model has 1.4 GB."""
    similar = {"similarity to the question": "question", "similarity to the best reference": "reference"}
    yield Judge("similarity", Similarity(), similar)
    yield Judge("BERTScore", BERTScore(model=BI_ENCODER), {"BERTScore": "f1", "BERTScore, recall": "recall"})
    yield _coverage(None)
    yield _nuggets(None)
    yield Judge(COMBINED, Linkage(make="combined"), {COMBINED: QUALITY})


def lm_judges(scorer: Scorer, context: JudgeEvalContext) -> Iterator[Judge]:
    for convention, worst in ((Convention.TYPED_RAG, "n"), (Convention.LINKAGE, "n + 1")):
        name = f"LINKAGE, worst rank {worst}"
        metric = Linkage(scorer.lm, convention=convention, seed=context.settings.seed)
        yield Judge(name, metric, {f"{name}, single rank": "rank", f"{name}, expected rank": "expected_rank"}, -1)
    for grade in (Relevance, Equivalence, Correctness):
        yield Judge(grade.name, grade(scorer.lm), {grade.name: "grade"})
    yield _coverage(scorer)
    yield _nuggets(scorer)


def _coverage(scorer: Scorer | None) -> Judge:
    """Sub-question coverage, judged by similarity: of the examples' own sub-questions without a scorer, else of those
    that the scorer writes and types once for all answers to a question."""
    metric = SubQuestionCoverage(scorer.lm if scorer else None, passages=False, cite="similarity")
    own = ", of the example's sub-questions" if scorer is None else ""
    return Judge("coverage", metric, {f"coverage, core{own}": "core", f"coverage, rating{own}": "rating"})


def _nuggets(scorer: Scorer | None) -> Judge:
    make = ", by the LM where unsure" if scorer else ""
    metric = Nuggets(scorer and scorer.lm, make="cascade" if scorer else "embedding", passages=False)
    scores = ("vital", "weighted", "weighted_strict", "density")
    return Judge("nuggets", metric, {f"nuggets, {name.replace('_', ', ')}{make}": name for name in scores})


def compare_pairs(
    context: JudgeEvalContext, scorer: Scorer, pairs: Sequence[Pair]
) -> tuple[list[Pair], dict[str, list[float]]]:
    """The pairs that the pairwise judge has judged, and by its scores the points of their better answers.

    With both orders, contradicting verdicts give half a point; the likelier answer needs the server's token
    probabilities. In one order, the better answer is first at random, so that a bias for a place does not matter.
    """
    judge = PairwiseJudge()
    judged = context.ask(
        "pairwise", scorer, lambda pair: compare_in_both_orders(judge, pair.question, pair.better, pair.worse), pairs
    )
    points = {
        "pairwise, both orders": [verdicts.points for _, verdicts in judged.judgments],
        "pairwise, one order": [
            POINTS_OF_FIRST[verdicts.forward]
            if int(text_hash(f"{pair.better}:{pair.worse}"), 16) % 2 == 0
            else 1 - POINTS_OF_FIRST[verdicts.backward]
            for pair, verdicts in judged.judgments
        ],
    }
    likelier = [v.likelier for _, v in judged.judgments if v.likelier is not None]
    if len(likelier) == len(judged.judgments):
        points["pairwise, both orders, the likelier"] = likelier
    return [pair for pair, _ in judged.judgments], points


def check_answers(context: JudgeEvalContext) -> JudgeReport:
    dataset, settings = context.dataset, context.settings
    examples = []
    for example in dataset.examples:
        try:
            if draw_references(example):
                examples.append(example)
        except NotMeasurable:
            continue
    drawn = context.draw(examples)
    cases = [case for e in drawn for case in labelled_answers(e, settings.seed)[: settings.candidates]]
    tested = {e.id for e in dataset.split("test" if dataset.name in TRAINED_ON else "all")}
    rows: list[Agreement] = []
    for judge in baselines():
        shown = [case for case in cases if judge.name != COMBINED or case.example.id in tested]
        rows += _score_answers(context, judge, None, shown)
    pairs = []  # each candidate with the next one for the same question, if their labels differ
    for case, other in pairwise(cases):
        worse, better = sorted((case.candidate, other.candidate), key=lambda r: r.label)
        if case.example.id == other.example.id and worse.label < better.label:
            pairs.append(Pair(case.example.question, better.text, worse.text, question_group(case.example)))
    for scorer in context.scorers:
        for judge in lm_judges(scorer, context):
            rows += _score_answers(context, judge, scorer, cases)
        rows += _order_pairs(context, scorer, pairs)
    left_out = len(dataset.examples) - len(examples)
    paragraphs = (
        f"{len(cases)} candidates of {len(drawn)} questions, at most {settings.candidates} a question, drawn "
        "from the labelled answers that are not among LINKAGE's references."
        + (f" {left_out} questions whose answers all have one label are left out." if left_out else ""),
        "Correlations are over all candidates; pairs are two candidates for one question with different labels, "
        "and a judge that cannot tell has half a point. The pairwise judge, which asks twice a pair, sees of a "
        "question's pairs those of neighbours in the order of the draw. Intervals resample questions. What asks "
        "no LM sees the other labelled answers too, but one of each label."
        + (f" {COMBINED}, was trained, so it is shown those of test alone." if dataset.name in TRAINED_ON else ""),
    )
    return rows, paragraphs


def check_preferences(context: JudgeEvalContext) -> JudgeReport:
    pairs = []
    for example in context.draw(context.dataset.examples):
        better, worse = example.answers_compared if example.preference > 0 else example.answers_compared[::-1]
        pairs.append(Pair(example.question, better, worse, question_group(example)))
    rows = [row for scorer in context.scorers for row in _order_pairs(context, scorer, pairs)]
    return rows, (f"{len(pairs)} pairs of answers. A tie has half a point. Intervals resample questions.",)


def _score_answers(
    context: JudgeEvalContext, judge: Judge, scorer: Scorer | None, cases: Sequence[LabelledAnswer]
) -> Iterator[Agreement]:
    measurable = [case for case in cases if judge.measures(case.example)]
    judged = context.ask(
        judge.name, scorer, lambda c: judge.measure(c.example, dspy.Prediction(answer=c.candidate.text)), measurable
    )
    for name, measure in judge.scores.items():
        measured = [(case, values[measure]) for case, values in judged.judgments if measure in values]
        if not measured and not judged.failures:
            continue
        scores = [judge.sign * value for _, value in measured]
        labels = [case.candidate.label for case, _ in measured]
        groups, seed = [question_group(case.example) for case, _ in measured], context.settings.seed
        measures = {
            "spearman": spearman(scores, labels, groups=groups, seed=seed),
            "kendall": kendall(scores, labels, groups=groups, seed=seed),
            "pairs_ordered": pairwise_order_accuracy(scores, labels, groups=groups, seed=seed),
        }
        by = scorer.name if scorer else ""
        yield Agreement(name, by, len(scores), len(judged.failures), defined(measures))


def _order_pairs(context: JudgeEvalContext, scorer: Scorer, pairs: Sequence[Pair]) -> Iterator[Agreement]:
    judged, points_by_score = compare_pairs(context, scorer, pairs)
    groups = [pair.group for pair in judged]
    for name, points in points_by_score.items():
        measures = defined({"pairs_ordered": context.mean(points, groups)})
        yield Agreement(name, scorer.name, len(points), len(pairs) - len(judged), measures)


def check_fabrications(context: JudgeEvalContext) -> JudgeReport:
    drawn = context.draw(context.dataset.examples)
    rows = [row for judge in baselines() for row in _beat_fabrications(context, judge, None, drawn)]
    name = "truthfulness, by support"  # gold answers would make it right by construction
    supported = Judge(name, Truthfulness(make="embedding"), {name: "truthfulness"})
    rows += _beat_fabrications(context, supported, None, [example.without("answers") for example in drawn])
    for scorer in context.scorers:
        for judge in lm_judges(scorer, context):
            rows += _beat_fabrications(context, judge, scorer, drawn)
        kinds: dict[Pair, AnswerKind] = {}
        for example in drawn:
            right, *others = example.candidates
            for other in others:
                kinds[Pair(example.question, right.text, other.text, question_group(example))] = other.kind
        judged, points_by_score = compare_pairs(context, scorer, list(kinds))
        for name, points in points_by_score.items():
            won = [(kinds[pair], pair.group, p) for pair, p in zip(judged, points, strict=True)]
            rows.append(Agreement(name, scorer.name, len(won), len(kinds) - len(judged), _by_kind(won, context)))
    paragraph = (
        f"The right answers to {len(drawn)} questions, each beside answers of other kinds: how often it is judged the "
        "better one. A judge that cannot tell has half a point. Intervals resample questions. "
        f"{COMBINED}, was trained on fabrications of Wiki-NFQA's train and validation: those of test tell."
    )
    return rows, (paragraph,)


def _beat_fabrications(
    context: JudgeEvalContext, judge: Judge, scorer: Scorer | None, examples: Sequence[dspy.Example]
) -> Iterator[Agreement]:
    def measure(case: tuple[dspy.Example, MadeAnswer]) -> Mapping[str, float]:
        example, candidate = case
        answered = Answered.NOTHING if candidate.kind is AnswerKind.NOTHING_FOUND else Answered.PASSAGES
        return judge.measure(example, dspy.Prediction(answer=candidate.text, answered=answered))

    cases = [
        (example, candidate) for example in examples if judge.measures(example) for candidate in example.candidates
    ]
    judged = context.ask(judge.name, scorer, measure, cases)
    for name, measured in judge.scores.items():
        by_question: dict[str, dict[AnswerKind, float]] = defaultdict(dict)
        groups = {}
        for (example, candidate), values in judged.judgments:
            if measured in values:
                by_question[example.id][candidate.kind] = judge.sign * values[measured]
                groups[example.id] = question_group(example)
        won = [
            (kind, groups[id_], 0.5 if values[AnswerKind.RIGHT] == value else float(values[AnswerKind.RIGHT] > value))
            for id_, values in by_question.items()
            for kind, value in values.items()
            if kind is not AnswerKind.RIGHT and AnswerKind.RIGHT in values
        ]
        if won:
            by = scorer.name if scorer else ""
            yield Agreement(name, by, len(won), len(judged.failures), _by_kind(won, context))


def _by_kind(won: Sequence[tuple[AnswerKind, str, float]], context: JudgeEvalContext) -> dict[str, Estimate]:
    """The mean points of right answers against all fabrications, and against each kind: 1 if better, 0.5 if level."""
    chosen = {
        FABRICATED: [(points, group) for kind, group, points in won if kind.fabricated],
        **{k.value: [(points, group) for kind, group, points in won if kind is k] for k in AnswerKind},
    }
    return defined({name: context.mean([p for p, _ in of], [g for _, g in of]) for name, of in chosen.items()})
