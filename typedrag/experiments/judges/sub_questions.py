"""Check judges of sub-questions: of their types, and of their coverage by an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby, islice, product
from statistics import fmean
from typing import get_args

import dspy

from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Estimate
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.experiments.judges.records import Agreement, Bench, Found, defined
from typedrag.metrics.estimate import binary_agreement, label_agreement, pairwise_order_accuracy
from typedrag.metrics.judges.human_labels import majority
from typedrag.metrics.labels import confusion
from typedrag.metrics.overlap import token_f1
from typedrag.metrics.similarity import cosine
from typedrag.sub_questions.coverage_judge import AnyCoverageJudge, Cite, Coverage, asks_lm, build_coverage_judge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_JUDGED: Mapping[Cite, str] = {
    "similarity": "by similarity",
    "cascade": "by similarity, citing words where unsure",
    "sentences": "citing sentences",
    "words": "citing words",
}
_Group = tuple[dspy.Example, ...]
"""Examples that a judge sees at once: all of one question, or of one answer."""


def check_sub_question_types(bench: Bench) -> Found:
    """Check the agreement of the typer with the type that most annotators chose, and of annotators with each other."""
    groups = _draw(bench, lambda e: e.question)
    drawn = [e for group in groups for e in group]
    agreed = {e.id: most for e in drawn if (most := majority(e.annotated_types))}
    rows = [_annotators(drawn, bench)]
    if agreed:
        [(frequent, _)] = Counter(agreed.values()).most_common(1)
        rows.append(_types(f"always {frequent}", "", [(e, frequent) for e in drawn], agreed, bench))
    rows += _typed(groups, agreed, bench)
    paragraph = (
        f"{len(drawn)} sub-questions of {len(groups)} questions, all those of a question typed in one call. On "
        f"{len(drawn) - len(agreed)} the annotators are divided: those are typed but not counted. The accuracy on a "
        "type is that on the sub-questions which most annotators call so. An annotator is compared with what most of "
        "the others say, where they are not divided. Intervals resample questions."
    )
    return Found(rows, (paragraph,))


def check_coverage(bench: Bench) -> Found:
    """Check the agreement of the coverage judge with people on whether an answer covers a sub-question."""
    groups = _draw(bench, lambda e: e.answer)
    drawn = [e for group in groups for e in group]
    rows = [_always_the_same(drawn, bench), _similar(drawn, bench), *_covered(groups, bench)]
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
    return Found(rows, (paragraph,))


def _draw(bench: Bench, of: Callable[[dspy.Example], str]) -> list[_Group]:
    """Draw as many groups at random as the limit allows."""
    seed = bench.settings.seed
    by_lot = sorted(
        bench.dataset.examples, key=lambda e: (text_hash(of(e), seed), of(e))
    )  # stable: a group keeps the order of the source
    groups = (tuple(members) for _, members in groupby(by_lot, key=of))
    return list(islice(groups, bench.settings.limit))


def _typed(groups: Sequence[_Group], agreed: Mapping[str, SubQuestionType], bench: Bench) -> Iterator[Agreement]:
    for scorer, shots in product(bench.scorers, ("zero-shot", "few-shot")):
        typer = SubQuestionTyper(few_shot=shots == "few-shot")

        def types(group: _Group, typer: SubQuestionTyper = typer) -> list[SubQuestionType]:
            types: list[SubQuestionType] = typer(
                question=group[0].question, sub_questions=[e.sub_question for e in group]
            ).types
            return types

        judged = bench.ask(f"types of sub-questions, {shots}", scorer, types, groups)
        typed = [pair for group, labels in judged.judgments for pair in zip(group, labels, strict=True)]
        failed = sum(len(group) for group, _ in judged.failures)
        yield _types(shots, scorer.name, typed, agreed, bench, failed)


def _types(
    judge: str,
    scorer: str,
    typed: Sequence[tuple[dspy.Example, SubQuestionType]],
    agreed: Mapping[str, SubQuestionType],
    bench: Bench,
    failed: int = 0,
) -> Agreement:
    compared = [(agreed[e.id], label, question_group(e)) for e, label in typed if e.id in agreed]
    table = None
    if scorer and compared:
        table = confusion([a for a, _, _ in compared], [g for _, g, _ in compared], list(SubQuestionType))
    return Agreement(judge, scorer, len(compared), failed, _by_type(compared, bench), table)


def _annotators(examples: Sequence[dspy.Example], bench: Bench) -> Agreement:
    compared = [
        (others, label, question_group(e))
        for e in examples
        for i, label in enumerate(e.annotated_types)
        if (others := majority(e.annotated_types[:i] + e.annotated_types[i + 1 :]))
    ]
    return Agreement("an annotator, by the others", "", len(compared), 0, _by_type(compared, bench))


def _by_type(
    compared: Sequence[tuple[SubQuestionType, SubQuestionType, Hashable]], bench: Bench
) -> dict[str, Estimate]:
    """The accuracy and macro-F1 of triples of right type, predicted type and group, and the accuracy on each type."""
    actual, predicted, groups = [a for a, _, _ in compared], [g for _, g, _ in compared], [q for _, _, q in compared]
    measures: dict[str, Estimate | None] = {}
    if compared:
        measures |= label_agreement(actual, predicted, groups=groups, seed=bench.settings.seed)
    for type in SubQuestionType:
        of_type = [(float(a == g), group) for a, g, group in compared if a is type]
        measures[type.value] = bench.mean([hit for hit, _ in of_type], [group for _, group in of_type])
    return defined(measures)


def _covered(groups: Sequence[_Group], bench: Bench) -> Iterator[Agreement]:
    without = [(None, cite) for cite in get_args(Cite) if not asks_lm(cite)]
    asking = [cite for cite in get_args(Cite) if asks_lm(cite)]
    for scorer, cite in (*without, *product(bench.scorers, asking)):
        name = f"coverage, {_JUDGED[cite]}"
        judge = build_coverage_judge(cite)

        def verdicts(group: _Group, judge: AnyCoverageJudge = judge) -> list[Coverage]:
            covers: list[Coverage] = judge(text=group[0].answer, sub_questions=[e.sub_question for e in group]).verdicts
            return covers

        judged = bench.ask(name, scorer, verdicts, groups)
        pairs = [pair for group, covers in judged.judgments for pair in zip(group, covers, strict=True)]
        failed = sum(len(group) for group, _ in judged.failures)
        yield Agreement(name, scorer.name if scorer else "", len(pairs), failed, _coverage_measures(pairs, bench))


def _coverage_measures(pairs: Sequence[tuple[dspy.Example, Coverage]], bench: Bench) -> dict[str, Estimate]:
    seed, groups = bench.settings.seed, [question_group(e) for e, _ in pairs]
    actual, predicted = [bool(e.covered) for e, _ in pairs], [c.answered for _, c in pairs]
    both = [(e, c) for e, c in pairs if e.covered and c.answered]
    return defined(
        {
            **binary_agreement(actual, predicted, groups=groups, seed=seed),
            "ordered": pairwise_order_accuracy(
                [float(c.answered) if c.probability is None else c.probability for _, c in pairs],
                list(map(int, actual)),
                groups=[e.answer for e, _ in pairs],
                units=groups,
                seed=seed,
            ),
            "invalid": bench.mean([float(c.invalid) for _, c in pairs], groups),
            "fragment": bench.mean(
                [token_f1(c.fragment, [e.fragment]) for e, c in both], [question_group(e) for e, _ in both]
            ),
        }
    )


def _always_the_same(examples: Sequence[dspy.Example], bench: Bench) -> Agreement:
    actual, groups = [e.covered for e in examples], [question_group(e) for e in examples]
    frequent = fmean(actual) >= 0.5
    measures = binary_agreement(actual, [frequent] * len(actual), groups=groups, seed=bench.settings.seed)
    return Agreement("always covered" if frequent else "never covered", "", len(actual), 0, measures)


def _similar(examples: Sequence[dspy.Example], bench: Bench) -> Agreement:
    judged = bench.ask("similarity", None, lambda e: cosine(e.sub_question, e.answer), examples)
    scores, shown = [score for _, score in judged.judgments], [e for e, _ in judged.judgments]
    ordered = pairwise_order_accuracy(
        scores,
        [int(e.covered) for e in shown],
        groups=[e.answer for e in shown],
        units=[question_group(e) for e in shown],
        seed=bench.settings.seed,
    )
    return Agreement("similarity to the answer", "", len(scores), 0, defined({"ordered": ordered}))
