"""Check judges of answers on labelled answers: LINKAGE, grades, the pairwise judge, and similarity as a yardstick.

For each question, one answer of each label is drawn as LINKAGE's reference, as a run would draw it;
some of the other labelled answers are candidates, which every judge scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Estimate
from typedrag.datasets.dataset import question_group
from typedrag.experiments.judges.readings import COMBINED, TRAINED_ON, Judge, Pair, judges_of, preferences, yardsticks
from typedrag.experiments.judges.records import Agreement, Bench, Found, Scorer, defined
from typedrag.metrics.estimate import kendall, pairwise_order_accuracy, spearman
from typedrag.metrics.judges.human_labels import LabelledAnswer, labelled_answers
from typedrag.metrics.judges.linkage import draw_references


def check_answers(bench: Bench) -> Found:
    """Check the agreement of judges of answers with the labels of a dataset's references."""
    dataset, settings = bench.dataset, bench.settings
    examples = [e for e in dataset.examples if _is_measurable(e)]
    drawn = bench.draw(examples)
    cases = [case for e in drawn for case in labelled_answers(e, settings.seed)[: settings.candidates]]
    tested = {e.id for e in dataset.split("test" if dataset.name in TRAINED_ON else "all")}
    rows: list[Agreement] = []
    for judge in yardsticks(bench):
        shown = [case for case in cases if judge.name != COMBINED or case.example.id in tested]
        rows += _scored(bench, judge, None, shown)
    for scorer in bench.scorers:
        rows += [row for judge in judges_of(scorer, bench) for row in _scored(bench, judge, scorer, cases)]
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
    return Found(rows, paragraphs)


def check_preferences(bench: Bench) -> Found:
    """Check the agreement of the pairwise judge with people's preferences among two answers."""
    pairs = []
    for example in bench.draw(bench.dataset.examples):
        better, worse = example.answers_compared if example.preference > 0 else example.answers_compared[::-1]
        pairs.append(Pair(example.question, better, worse, question_group(example)))
    rows = [row for scorer in bench.scorers for row in _compared(bench, scorer, pairs)]
    return Found(rows, (f"{len(pairs)} pairs of answers. A tie has half a point. Intervals resample questions.",))


def _is_measurable(example: dspy.Example) -> bool:
    try:
        return bool(draw_references(example))
    except NotMeasurable:
        return False


def _scored(bench: Bench, judge: Judge, scorer: Scorer | None, cases: Sequence[LabelledAnswer]) -> Iterator[Agreement]:
    def measure(case: LabelledAnswer) -> Mapping[str, float]:
        return judge.measure(case.example, dspy.Prediction(answer=case.candidate.text))

    judged = bench.ask(judge.name, scorer, measure, [case for case in cases if judge.measures(case.example)])
    for reading in judge.readings:
        read = [(case, values[reading.measure]) for case, values in judged.judgments if reading.measure in values]
        if not read and not judged.failures:
            continue
        scores = [reading.sign * value for _, value in read]
        labels = [case.candidate.label for case, _ in read]
        groups = [question_group(case.example) for case, _ in read]
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
            pairs.append(Pair(case.example.question, better.text, worse.text, question_group(case.example)))
    return pairs


def _compared(bench: Bench, scorer: Scorer, pairs: Sequence[Pair]) -> Iterator[Agreement]:
    judged, readings = preferences(bench, scorer, pairs)
    groups = [pair.group for pair in judged]
    for name, points in readings.items():
        measures = defined({"pairs_ordered": bench.mean(points, groups)})
        yield Agreement(name, scorer.name, len(points), len(pairs) - len(judged), measures)
