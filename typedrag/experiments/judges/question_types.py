"""Check type classifiers, the linear model and the LM, on NF-CATS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.experiments.judges.judging import JudgedBatch
from typedrag.experiments.judges.records import Agreement, Bench, Found
from typedrag.metrics.estimate import label_agreement
from typedrag.metrics.labels import confusion
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier, LMTypeClassifier


def check_question_types(bench: Bench) -> Found:
    """Check the agreement of classifiers with the labelled types of a dataset's questions.

    The linear model classifies all questions, an LM as many as the settings' limit allows; for comparison, the
    linear model is also shown on the LM's questions.
    """
    examples, seed, limit = bench.dataset.examples, bench.settings.seed, bench.settings.limit
    drawn = sorted(examples, key=lambda e: text_hash(e.id, seed))[:limit]  # types as frequent as in all
    linear = LinearTypeClassifier()
    named = bench.ask("linear", None, lambda e: linear(question=e.question).question_type, examples)
    rows = [_most_frequent(examples, bench), _agreement("linear, all questions", "", named, bench)]
    if bench.scorers:
        chosen = {e.id for e in drawn}
        same = JudgedBatch(tuple((e, label) for e, label in named.judgments if e.id in chosen))
        rows.append(_agreement("linear, the LM's questions", "", same, bench))
        rows += _asked(drawn, bench)
    return Found(rows, (f"{len(examples)} questions; LMs are asked about {len(drawn)} of them.",))


def _asked(examples: Sequence[dspy.Example], bench: Bench) -> Iterator[Agreement]:
    classifier = LMTypeClassifier(Options())

    def classify(example: dspy.Example) -> QuestionType:
        return QuestionType(classifier(question=example.question).question_type)

    for scorer in bench.scorers:
        yield _agreement("LM", scorer.name, bench.ask("LM", scorer, classify, examples), bench)


def _agreement(
    judge: str, scorer: str, judged: JudgedBatch[dspy.Example, QuestionType], bench: Bench, *, table: bool = True
) -> Agreement:
    actual = [e.question_type for e, _ in judged.judgments]
    predicted = [t for _, t in judged.judgments]
    return Agreement(
        judge=judge,
        scorer=scorer,
        n=len(predicted),
        failed=len(judged.failures),
        measures=label_agreement(
            actual, predicted, groups=[question_group(e) for e, _ in judged.judgments], seed=bench.settings.seed
        ),
        confusion=confusion(actual, predicted, list(QuestionType)) if table and predicted else None,
    )


def _most_frequent(examples: Sequence[dspy.Example], bench: Bench) -> Agreement:
    [(frequent, _)] = Counter(e.question_type for e in examples).most_common(1)
    always = JudgedBatch(tuple((e, frequent) for e in examples))
    return _agreement(f"always {frequent}", "", always, bench, table=False)
