"""Where a program loses to a baseline, and to which of its steps the loss can be laid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import dspy

from typedrag.experiments.compare.compare import higher_is_better
from typedrag.experiments.evaluate.results import QuestionResult, Run
from typedrag.metrics.rouge import rouge_scorer
from typedrag.question_types import QuestionType
from typedrag.records import Answer
from typedrag.texts.words import folded


class Cause(StrEnum):
    """Why an answer is worse than the baseline's, in the order of a program's steps."""

    WRONG_TYPE = "wrong type"
    DRIFT = "sub-queries drift"
    NO_ANSWER = "passages do not hold the answer"
    LOST = "the aggregation loses what sub-answers had"
    WORSE_ANSWER = "a worse answer from passages as good"

    @property
    def definition(self) -> str:
        """By which signs in the trace a loss is laid to it."""
        return _DEFINITIONS[self]


_DEFINITIONS = {
    Cause.WRONG_TYPE: "the program answered by another type than the one the question was labelled with by hand",
    Cause.DRIFT: "fewer of the passages that it answered from hold an answer than of the baseline's",
    Cause.NO_ANSWER: "no passage that either answered from holds an answer",
    Cause.LOST: "a sub-answer shares more of the best reference than the answer that was made of all sub-answers",
    Cause.WORSE_ANSWER: "none of the others: as many passages hold an answer, and nothing was lost in combining",
}


@dataclass(frozen=True)
class Loss:
    """A question that a program answered worse than the baseline.

    Attributes:
        id: Of the question.
        question: As asked.
        question_type: By which the program answered.
        loss: By how much it is worse, in the units of the measure.
        causes: All that apply, in the order of the program's steps; the first one comes first in
            the program too, so that the others may follow from it.
    """

    id: str
    question: str
    question_type: QuestionType | None
    loss: float
    causes: tuple[Cause, ...]


def losses(
    run: Run,
    baseline: Run,
    examples: Mapping[str, dspy.Example],
    *,
    measure: str,
    labels: Mapping[str, QuestionType] | None = None,
) -> list[Loss]:
    """The questions that a run answered worse than a baseline, worst first, each with its causes.

    A passage counts as holding an answer if the dataset labels it so, or if it contains one of the
    short gold answers.

    Args:
        run: Of the program.
        baseline: Of the baseline, over the same questions.
        examples: Of the dataset, by id.
        measure: As `metric/measure`.
        labels: Question types given by hand, by question id, where there are any.
    """
    sign = 1 if higher_is_better(measure) else -1
    ours, theirs = run.values(measure), baseline.values(measure)
    questions = {q.id: q for q in baseline.questions}
    found = []
    for question in run.questions:
        if question.id not in ours or question.id not in theirs:
            continue
        loss = sign * (theirs[question.id] - ours[question.id])
        rival = questions[question.id]
        if loss > 0 and question.answer and rival.answer:
            causes = _causes(question.answer, rival.answer, examples[question.id], (labels or {}).get(question.id))
            found.append(_loss(question, loss, causes))
    return sorted(found, key=lambda found_loss: -found_loss.loss)


def holding(answer: Answer, example: dspy.Example) -> set[str]:
    """The ids of the passages that an answer was written from and that hold an answer."""
    labelled = set(example.get("passage_ids") or ())
    golds = [folded(gold) for gold in example.get("answers") or () if gold.strip()]
    return {p.id for p in answer.passages if p.id in labelled or any(g in folded(f"{p.title} {p.text}") for g in golds)}


def sub_answers(answer: Answer) -> list[str]:
    """What was answered to each sub-query, where sub-queries were answered one by one."""
    return [step.output for s in answer.steps for step in s.walk() if step.name == "sub-query" and step.output]


def _loss(question: QuestionResult, loss: float, causes: tuple[Cause, ...]) -> Loss:
    question_type = question.answer.question_type if question.answer else None
    return Loss(question.id, question.question, question_type, loss, causes)


def _causes(answer: Answer, rival: Answer, example: dspy.Example, label: QuestionType | None) -> tuple[Cause, ...]:
    ours, theirs = holding(answer, example), holding(rival, example)
    applies = {
        Cause.WRONG_TYPE: label is not None and answer.question_type != label,
        Cause.DRIFT: len(ours) < len(theirs),
        Cause.NO_ANSWER: not ours and not theirs,
        Cause.LOST: _lost(answer, example),
    }
    return tuple(cause for cause, does in applies.items() if does) or (Cause.WORSE_ANSWER,)


def _lost(answer: Answer, example: dspy.Example) -> bool:
    references = list(example.get("references") or ())
    parts = sub_answers(answer)
    if not references or not parts:
        return False
    best = references[0].text
    return _best_recall(parts, best) > _best_recall([answer.answer], best)


def _best_recall(texts: Sequence[str], reference: str) -> float:
    scorer = rouge_scorer(("rouge1",), stemmer=True)
    return max(scorer.score(reference, text)["rouge1"].recall for text in texts)
