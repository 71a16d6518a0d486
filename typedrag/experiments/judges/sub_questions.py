"""Check judges of sub-questions, of their types and their coverage by an answer, and type classifiers."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby, islice, product
from statistics import fmean

import dspy

from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.core.records import Estimate
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.experiments.judges.judging import Agreement, JudgedBatch, JudgeEvalContext, JudgeReport, defined
from typedrag.metrics.estimate import binary_agreement, label_agreement, pairwise_order_accuracy
from typedrag.metrics.judges.human_labels import majority
from typedrag.metrics.labels import confusion
from typedrag.metrics.overlap import token_f1
from typedrag.metrics.similarity import cosine
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier, LMTypeClassifier
from typedrag.sub_questions.coverage_judge import AnyCoverageJudge, Cite, Coverage, asks_lm, build_coverage_judge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_JUDGED: Mapping[Cite, str] = {
    "similarity": "by similarity",
    "cascade": "by similarity, citing words where unsure",
    "sentences": "citing sentences",
    "words": "citing words",
}
_Group = tuple[dspy.Example, ...]  # that a judge sees at once: of one question, or of one answer


def _draw_groups(context: JudgeEvalContext, key: Callable[[dspy.Example], str]) -> list[_Group]:
    seed = context.settings.seed
    # stable: a group keeps the order of the source
    by_lot = sorted(context.dataset.examples, key=lambda e: (text_hash(key(e), seed), key(e)))
    groups = (tuple(members) for _, members in groupby(by_lot, key=key))
    return list(islice(groups, context.settings.limit))


def check_sub_question_types(context: JudgeEvalContext) -> JudgeReport:
    groups = _draw_groups(context, lambda e: e.question)
    drawn = [e for group in groups for e in group]
    agreed = {e.id: most for e in drawn if (most := majority(e.annotated_types))}
    by_others = [
        (others, label, question_group(e))
        for e in drawn
        for i, label in enumerate(e.annotated_types)
        if (others := majority(e.annotated_types[:i] + e.annotated_types[i + 1 :]))
    ]
    by_all = [(agreed[e.id], label, question_group(e)) for e in drawn if e.id in agreed for label in e.annotated_types]
    rows = [_compare_types("an annotator, by the others", "", by_others, context)]
    rows.append(_compare_types("an annotator, by all, as published", "", by_all, context))
    if agreed:
        [(frequent, _)] = Counter(agreed.values()).most_common(1)
        always = [(agreed[e.id], frequent, question_group(e)) for e in drawn if e.id in agreed]
        rows.append(_compare_types(f"always {frequent}", "", always, context))
    for scorer, shots in product(context.scorers, ("zero-shot", "few-shot")):
        typer = SubQuestionTyper(few_shot=shots == "few-shot")

        def types(group: _Group, typer: SubQuestionTyper = typer) -> list[SubQuestionType]:
            named = typer(question=group[0].question, sub_questions=[e.sub_question for e in group])
            return list(named.types)

        judged = context.ask(f"types of sub-questions, {shots}", scorer, types, groups)
        typed = [pair for group, labels in judged.judgments for pair in zip(group, labels, strict=True)]
        compared = [(agreed[e.id], label, question_group(e)) for e, label in typed if e.id in agreed]
        failed = sum(len(group) for group, _ in judged.failures)
        rows.append(_compare_types(shots, scorer.name, compared, context, failed))
    paragraph = (
        f"{len(drawn)} sub-questions of {len(groups)} questions, all those of a question typed in one call. On "
        f"{len(drawn) - len(agreed)} the annotators are divided: those are typed but not counted. The accuracy on a "
        "type is that on the sub-questions which most annotators call so. An annotator is compared with what most of "
        "the others say, where they are not divided; as published, with what most of all say. Intervals resample "
        "questions."
    )
    return rows, (paragraph,)


def _compare_types(
    judge: str,
    scorer: str,
    compared: Sequence[tuple[SubQuestionType, SubQuestionType, Hashable]],
    context: JudgeEvalContext,
    failed: int = 0,
) -> Agreement:
    """The accuracy and macro-F1 of triples of right type, predicted type and group, and the accuracy on each type."""
    actual, predicted, groups = [a for a, _, _ in compared], [p for _, p, _ in compared], [g for _, _, g in compared]
    table = confusion(actual, predicted, list(SubQuestionType)) if scorer and compared else None
    overall = label_agreement(actual, predicted, groups=groups, seed=context.settings.seed) if compared else {}
    by_type = {}
    for type_ in SubQuestionType:
        hits = [(float(a == p), group) for a, p, group in compared if a is type_]
        by_type[type_.value] = context.mean([hit for hit, _ in hits], [group for _, group in hits])
    return Agreement(judge, scorer, len(compared), failed, defined({**overall, **by_type}), table)


def check_coverage(context: JudgeEvalContext) -> JudgeReport:
    groups, seed = _draw_groups(context, lambda e: e.answer), context.settings.seed
    drawn = [e for group in groups for e in group]
    actual, units = [e.covered for e in drawn], [question_group(e) for e in drawn]
    frequent = fmean(actual) >= 0.5
    always = binary_agreement(actual, [frequent] * len(actual), groups=units, seed=seed)
    rows = [Agreement("always covered" if frequent else "never covered", "", len(actual), 0, always)]
    similar = context.ask("similarity", None, lambda e: cosine(e.sub_question, e.answer), drawn)
    ordered = _order(similar.judgments, seed)
    rows.append(Agreement("similarity to the answer", "", len(similar.judgments), 0, defined({"ordered": ordered})))
    without = [(None, cite) for cite in _JUDGED if not asks_lm(cite)]
    asking = [cite for cite in _JUDGED if asks_lm(cite)]
    for scorer, cite in (*without, *product(context.scorers, asking)):
        judge = build_coverage_judge(cite)

        def verdicts(group: _Group, judge: AnyCoverageJudge = judge) -> list[Coverage]:
            return list(judge(text=group[0].answer, sub_questions=[e.sub_question for e in group]).verdicts)

        name = f"coverage, {_JUDGED[cite]}"
        judged = context.ask(name, scorer, verdicts, groups)
        pairs = [pair for group, covers in judged.judgments for pair in zip(group, covers, strict=True)]
        failed = sum(len(group) for group, _ in judged.failures)
        measures = _coverage_measures(pairs, context)
        rows.append(Agreement(name, scorer.name if scorer else "", len(pairs), failed, measures))
    paragraph = (
        f"{len(drawn)} sub-questions on {len(groups)} answers, many of an answer judged in one call. Ordered: of two "
        "sub-questions on an answer, one covered and one not, how often the former is held more covered, by the "
        "probability where there is one; half is chance. "
        "The weights by which similarity judges were fitted on 120 such labels, on 6 answers: by those it looks better "
        "than it is. On each answer by weights of the others its accuracy is 0.808 and its order 0.846. "
        "Invalid: how often the judge quoted words that are not in the answer, even when asked again; that counts as "
        "not covered. Fragment: the word overlap (F1) of the judge's and the people's fragments, where both say "
        "covered. Intervals resample questions."
    )
    return rows, (paragraph,)


def _order(scored: Sequence[tuple[dspy.Example, float]], seed: int) -> Estimate | None:
    """The share of pairs of sub-questions on an answer in which the one that people call covered scores higher."""
    return pairwise_order_accuracy(
        [score for _, score in scored],
        [int(e.covered) for e, _ in scored],
        groups=[e.answer for e, _ in scored],
        units=[question_group(e) for e, _ in scored],
        seed=seed,
    )


def _coverage_measures(
    pairs: Sequence[tuple[dspy.Example, Coverage]], context: JudgeEvalContext
) -> dict[str, Estimate]:
    seed, groups = context.settings.seed, [question_group(e) for e, _ in pairs]
    actual, predicted = [bool(e.covered) for e, _ in pairs], [c.answered for _, c in pairs]
    both = [(token_f1(c.fragment, [e.fragment]), question_group(e)) for e, c in pairs if e.covered and c.answered]
    ranked = [(e, float(c.answered) if c.probability is None else c.probability) for e, c in pairs]
    return defined(
        {
            **binary_agreement(actual, predicted, groups=groups, seed=seed),
            "ordered": _order(ranked, seed),
            "invalid": context.mean([float(c.invalid) for _, c in pairs], groups),
            "fragment": context.mean([f1 for f1, _ in both], [group for _, group in both]),
        }
    )


def check_question_types(context: JudgeEvalContext) -> JudgeReport:
    """Check the agreement of classifiers with the labelled types of a dataset's questions.

    The linear model classifies all questions, an LM as many as the settings' limit allows; for comparison, the
    linear model is also shown on the LM's questions.
    """
    examples, seed, limit = context.dataset.examples, context.settings.seed, context.settings.limit
    drawn = sorted(examples, key=lambda e: text_hash(e.id, seed))[:limit]  # types as frequent as in all
    linear, classifier = LinearTypeClassifier(), LMTypeClassifier(Options())

    def row(
        judge: str, scorer: str, judged: JudgedBatch[dspy.Example, QuestionType], *, table: bool = True
    ) -> Agreement:
        actual, predicted = [e.question_type for e, _ in judged.judgments], [t for _, t in judged.judgments]
        groups = [question_group(e) for e, _ in judged.judgments]
        measures = label_agreement(actual, predicted, groups=groups, seed=seed)
        counts = confusion(actual, predicted, list(QuestionType)) if table and predicted else None
        return Agreement(judge, scorer, len(predicted), len(judged.failures), measures, counts)

    [(frequent, _)] = Counter(e.question_type for e in examples).most_common(1)
    named = context.ask("linear", None, lambda e: linear(question=e.question).question_type, examples)
    rows = [
        row(f"always {frequent}", "", JudgedBatch(tuple((e, frequent) for e in examples)), table=False),
        row("linear, all questions", "", named),
    ]
    if context.scorers:
        chosen = {e.id for e in drawn}
        same = JudgedBatch(tuple((e, label) for e, label in named.judgments if e.id in chosen))
        rows.append(row("linear, the LM's questions", "", same))
    for scorer in context.scorers:
        judged = context.ask("LM", scorer, lambda e: QuestionType(classifier(question=e.question).question_type), drawn)
        rows.append(row("LM", scorer.name, judged))
    return rows, (f"{len(examples)} questions; LMs are asked about {len(drawn)} of them.",)
