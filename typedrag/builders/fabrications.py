"""Right answers beside fabrications of the same length and manner, to test judges with.

A judge that ranks a fabrication above the right answer rewards a program for making things up.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import ClassVar, NamedTuple

import dspy
from pydantic import PositiveInt

from typedrag.builders.builder import Built, DatasetBuilder, OpenLM, count_rows, usable
from typedrag.core.errors import StepFailed
from typedrag.datasets.dataset import text_hash
from typedrag.datasets.preferences import AnswerKind, MadeAnswer
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.metrics.overlap import ENTITY_SEPARATOR, MOST_WORDS, contains
from typedrag.runs.work import Stages
from typedrag.signatures.generation import GuessAnswer, ProposeWrongAnswer, StateAnswer

NOTHING_FOUND = (
    "The passages do not say anything that answers the question.",
    "I found nothing on this in the collection.",
    "None of the documents that I have tells this, so I do not know.",
)
"""Ways to say that nothing was found; a question's hash picks one."""
_DIGIT = re.compile(r"\d")


class Fabrications(DatasetBuilder):
    """Write a right answer and fabrications of the same length and style to each question.

    `typedrag research judges check --path fabrications=FILE` then tests judges with them.
    """

    name: ClassVar[str] = "fabrications"
    counted: ClassVar[tuple[str, ...]] = ("kind",)
    of: ClassVar[str] = "answers"

    dataset: str = "wiki-nfqa"
    """A dataset with gold answers."""
    gold_words: PositiveInt = MOST_WORDS
    """Words of a gold answer at most: for a longer one no rule tells whether an answer holds it."""

    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        questions = self.draw()
        with use_lm(open_lm(None)):
            return build_fabrications(questions, stages, self)

    def counts(self, built: Built) -> dict[str, int]:
        """The number of answers of each kind."""
        return count_rows([candidate for row in built.rows for candidate in row["candidates"]], *self.counted)


def build_fabrications(
    questions: Sequence[dspy.Example],
    stages: Stages,
    settings: Fabrications,
) -> Built:
    """Build questions with a right answer and fabrications, in the layout of dataset `fabrications`. An answer that
    should be wrong must hold no gold answer; one that says the same in other words passes for wrong."""
    built = Built()
    suited = []
    for question in questions:
        answers = question.get("answers")
        if not answers:
            built.left_out["questions: no gold answer"] += 1
        elif ENTITY_SEPARATOR in answers[0]:
            built.left_out["questions: a gold answer of several entities"] += 1
        elif len(answers[0].split()) > settings.gold_words:
            built.left_out["questions: a long gold answer"] += 1
        else:
            suited.append(question)
    predictors = {s: dspy.Predict(s) for s in (StateAnswer, GuessAnswer, ProposeWrongAnswer)}

    def write(signature: type[dspy.Signature], **inputs: str) -> str:
        try:
            reply = ask("write", predictors[signature], retries=settings.retries, **inputs).prediction
        except StepFailed:
            return ""
        [(_, answer)] = reply.items()
        return str(answer.root).strip()

    def make(question: dspy.Example) -> _Written:
        inputs = {"question": question.question}
        known = {**inputs, "right_answer": question.answers[0]}
        return _Written(write(StateAnswer, **known), write(GuessAnswer, **inputs), write(ProposeWrongAnswer, **known))

    written: list[tuple[dspy.Example, _Written]] = []
    written += usable(suited, stages.run("questions", make, suited), built, "questions: ")
    stated = {str(question.id): texts.right for question, texts in written if _is_right(texts.right, question)}
    for question, texts in written:
        if str(question.id) not in stated:
            built.left_out["questions: the right answer was not stated"] += 1
            continue
        candidates = [MadeAnswer(AnswerKind.RIGHT, texts.right)]
        for candidate in _wrong_answers(question, texts, suited, stated, settings.seed):
            if not candidate.text:
                built.left_out[f"{candidate.kind}: none could be made"] += 1
            elif _is_right(candidate.text, question):
                built.left_out[f"{candidate.kind}: it holds the right answer"] += 1
            else:
                candidates.append(candidate)
        row = {
            "id": str(question.id),
            **({"subset": question.subset} if question.get("subset") else {}),
            "question": question.question,
            "answers": list(question.answers),
            "candidates": [{"kind": candidate.kind.value, "text": candidate.text} for candidate in candidates],
            "references": [asdict(reference) for reference in question.get("references") or ()],
        }
        built.rows.append(row)
    return built


class _Written(NamedTuple):
    """An LM's texts for a question; empty if unreadable."""

    right: str
    guess: str
    wrong: str


def _is_right(text: str, question: dspy.Example) -> bool:
    return any(contains(text, gold) for gold in question.answers)


def _wrong_answers(
    question: dspy.Example, texts: _Written, questions: Sequence[dspy.Example], stated: Mapping[str, str], seed: int
) -> Iterator[MadeAnswer]:
    """Yield an answer of each kind of fabrication; with an empty text if there is none."""
    others = sorted(
        (q for q in questions if q.question != question.question),
        key=lambda q: text_hash(f"{question.id}:{q.id}", seed),
    )
    kind = _kind(question.answers[0])
    same_kind = (q.answers[0] for q in others if _kind(q.answers[0]) == kind)
    elsewhere = (stated[str(q.id)] for q in others if str(q.id) in stated)
    draw = int(text_hash(str(question.id), seed), 16)
    yield MadeAnswer(AnswerKind.GUESSED, texts.guess)
    yield MadeAnswer(AnswerKind.EXCHANGED, exchange_answer(texts.right, question.answers, next(same_kind, "")))
    yield MadeAnswer(AnswerKind.FALSIFIED, exchange_answer(texts.right, question.answers, texts.wrong))
    yield MadeAnswer(AnswerKind.OFF_SUBJECT, next(elsewhere, ""))
    yield MadeAnswer(AnswerKind.NOTHING_FOUND, NOTHING_FOUND[draw % len(NOTHING_FOUND)])


def exchange_answer(right: str, answers: Sequence[str], other: str) -> str:
    """A right answer with another text in place of the gold answer; empty if the gold answer is not in it.

    Example:
        >>> exchange_answer("Conscription began in 1793.", ["1793"], "1651")
        'Conscription began in 1651.'
    """
    for gold in answers:
        place = re.search(rf"(?<!\w){re.escape(gold.strip())}(?!\w)", right, re.IGNORECASE)
        if place and other.strip():
            return right[: place.start()] + other.strip() + right[place.end() :]
    return ""


def _kind(gold: str) -> str:
    """A gold answer is replaced only by its like: a number by a number, a name by a name."""
    if _DIGIT.search(gold):
        return "number"
    words = gold.split()
    return "name" if all(word[:1].isupper() for word in words) else f"words, {'one' if len(words) == 1 else 'several'}"
