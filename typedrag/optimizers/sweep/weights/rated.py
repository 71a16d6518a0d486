"""Rated answers: the shares of sub-questions that they cover, with labels or preferences to predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.datasets.reading import Layout, parse, read_rows
from typedrag.datasets.splits import group_of
from typedrag.errors import InputError, NotMeasurable
from typedrag.experiments.compare.compare import higher_is_better
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.judges.judging import JudgedBatch, Stage, judge_each, unseen
from typedrag.files.text_files import write_json_lines
from typedrag.metrics.judges.judgments import Judgments
from typedrag.metrics.judges.linkage import draw_references
from typedrag.metrics.judges.pairwise import PairwiseJudge, compare_in_both_orders
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.question_types import SubQuestionType

TYPES = tuple(type.name.lower() for type in SubQuestionType)


class RatedAnswer(Layout):
    """An answer to a question, with its coverage and the rating to predict."""

    question: str
    """The id of the question's example; answers with the same id are compared."""
    answer: str = ""
    """A name that tells the answer from others to the question."""
    core: float | None = None
    """The share of the question's core sub-questions that it covers; None if the question has none."""
    background: float | None = None
    """The share of background sub-questions that it covers."""
    follow_up: float | None = None
    """The share of follow-up sub-questions that it covers."""
    target: float
    """The rating to predict; more is better."""
    judge: float | None = None
    """The rating by an LM judge, as a baseline; more is better, None if the judge was not asked."""
    group: str = ""
    """The key of the question's text, which several examples may share; by default `question`."""


def read_rated(file: Path) -> list[RatedAnswer]:
    """Read the answers that `write_rated` wrote, or rows like them.

    Raises:
        InputError: If a row has a wrong field.
    """
    return [parse(RatedAnswer, entry) for entry in read_rows(file)]


def write_rated(answers: Sequence[RatedAnswer], file: Path) -> None:
    """Write a line for each answer."""
    write_json_lines(file, [answer.model_dump() for answer in answers])


def rated_runs(runs: Sequence[Run], target: str) -> list[RatedAnswer]:
    """The rated answers of runs that have measured coverage and the target; no LM is asked.

    Raises:
        InputError: If no question has two answers with both.
    """
    sign = 1 if higher_is_better(target) else -1
    answers = []
    for n, run in enumerate(runs):
        shares = {type: run.values(f"coverage/{type}") for type in TYPES}
        groups = run.groups
        for question, value in run.values(target).items():
            covered = {type: shares[type].get(question) for type in TYPES}
            if any(share is not None for share in covered.values()):
                answers.append(
                    RatedAnswer(
                        question=question,
                        answer=f"{n + 1}: {run.name}",
                        target=sign * value,
                        group=groups[question],
                        **covered,
                    )
                )
    if not answers:
        raise InputError(f"no run has measured coverage and {target}", "Evaluate with both: --metric coverage,…")
    return answers


@dataclass(frozen=True)
class _Case:
    example: dspy.Example
    answer: str
    text: str
    target: float


def rated_answers(
    dataset: Dataset,
    scorer: dspy.LM,
    judgments: Judgments,
    *,
    limit: int | None = None,
    candidates: int = 4,
    seed: int = 0,
    threads: int = 16,
    lm_judge: bool = True,
    stage: Stage = unseen,
    **options: Any,
) -> tuple[list[RatedAnswer], list[JudgedBatch[Any, Any]]]:
    """Judge the coverage of a dataset's labelled answers. Judgments in the store cost nothing.

    Args:
        dataset: A dataset whose examples have `answers_compared` and a `preference`, or labelled references.
        limit: The most examples, drawn in turn from each subset and type.
        candidates: The most references of an example, at most one for each label.
        lm_judge: Also ask the LM which of two compared answers is better.
        options: Options of the metric `coverage`.

    Returns:
        The answers that could be judged, and the batches of judgments with their failures.

    Raises:
        InputError: If no example has answers that can be compared.
        LMUnavailable: If the LM cannot be used.
    """
    examples = sample(dataset.examples, limit or len(dataset.examples), seed)
    cases = [case for e in examples for case in _cases(e, candidates, seed)]
    if not cases:
        raise InputError(
            f"dataset '{dataset.name}' has no answers that people prefer or label", "Name another, such as webgpt"
        )
    metric = SubQuestionCoverage(scorer, judgments, passages=False, **options)

    def judge(case: _Case) -> dict[str, float] | None:
        try:
            return metric(case.example, dspy.Prediction(answer=case.text, passages=())).measures
        except NotMeasurable:
            return None

    judged = judge_each(judge, cases, scorer=scorer, threads=threads, stage=stage, name="coverage")
    took: list[JudgedBatch[Any, Any]] = [judged]
    points_of: dict[tuple[str, str], float] = {}
    compared = [e for e in examples if e.get("answers_compared")]
    if lm_judge and compared:
        pairwise = PairwiseJudge()

        def compare(example: dspy.Example) -> float:
            verdicts = compare_in_both_orders(pairwise, judgments, example.question, *example.answers_compared)
            return verdicts.outcome.points

        verdicts = judge_each(compare, compared, scorer=scorer, threads=threads, stage=stage, name="pairwise")
        took.append(verdicts)
        for example, points in verdicts.judgments:
            points_of |= {(str(example.id), "first"): points, (str(example.id), "second"): 1 - points}
    rated = [
        RatedAnswer(
            question=str(case.example.id),
            answer=case.answer,
            **{type: measures.get(type) for type in TYPES},
            target=case.target,
            judge=points_of.get((str(case.example.id), case.answer)),
            group=group_of(case.example),
        )
        for case, measures in judged.judgments
        if measures is not None
    ]
    return rated, took


def _cases(example: dspy.Example, candidates: int, seed: int) -> Iterator[_Case]:
    if answers := example.get("answers_compared"):
        preference = float(example.preference)
        for name, text, sign in zip(("first", "second"), answers, (1, -1), strict=True):
            yield _Case(example, name, text, sign * preference)
        return
    try:
        references = draw_references(example, seed, candidates)
    except NotMeasurable:
        return
    for n, reference in enumerate(references):
        yield _Case(example, str(n + 1), reference.text, float(reference.label))
