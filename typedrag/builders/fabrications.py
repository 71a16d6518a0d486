"""Right answers beside fabrications of the same length and manner, to test judges with."""

import re
from collections.abc import Sequence
from dataclasses import asdict

import dspy

from typedrag.builders.builder import Built, OpenLM, count_rows, usable
from typedrag.builders.settings import FabricationsSettings
from typedrag.core.errors import StepFailed
from typedrag.datasets.dataset import text_hash
from typedrag.datasets.preferences import AnswerKind
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.metrics.overlap import ENTITY_SEPARATOR, contains
from typedrag.runs.work import Stages
from typedrag.signatures.generation import GuessAnswer, ProposeWrongAnswer, StateAnswer

NOTHING_FOUND = (
    "The passages do not say anything that answers the question.",
    "I found nothing on this in the collection.",
    "None of the documents that I have tells this, so I do not know.",
)
"""Ways to say that nothing was found; a question's hash picks one."""


class Fabrications(FabricationsSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        questions = self.draw()
        with use_lm(open_lm(None)):
            return self.fabricate(questions, stages)

    def counts(self, built: Built) -> dict[str, int]:
        """The number of answers of each kind."""
        return count_rows([candidate for row in built.rows for candidate in row["candidates"]], *self.counted)

    def fabricate(self, questions: Sequence[dspy.Example], stages: Stages) -> Built:
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
            elif len(answers[0].split()) > self.gold_words:
                built.left_out["questions: a long gold answer"] += 1
            else:
                suited.append(question)
        predictors = {s: dspy.Predict(s) for s in (StateAnswer, GuessAnswer, ProposeWrongAnswer)}

        def write(signature: type[dspy.Signature], **inputs: str) -> str:
            try:
                reply = ask("write", predictors[signature], retries=self.retries, **inputs).prediction
            except StepFailed:
                return ""
            [(_, answer)] = reply.items()
            return str(answer.root).strip()

        def make(question: dspy.Example) -> tuple[str, str, str]:
            """The right answer, a guess and the likeliest wrong name, date or number; each empty if unreadable."""
            inputs = {"question": question.question}
            known = {**inputs, "right_answer": question.answers[0]}
            return write(StateAnswer, **known), write(GuessAnswer, **inputs), write(ProposeWrongAnswer, **known)

        def is_right(text: str, question: dspy.Example) -> bool:
            return any(contains(text, gold) for gold in question.answers)

        drafts: list[tuple[dspy.Example, tuple[str, str, str]]] = []
        drafts += usable(suited, stages.run("questions", make, suited), built, "questions: ")
        stated = {str(question.id): right for question, (right, *_) in drafts if is_right(right, question)}
        for question, (right, guess, wrong) in drafts:
            if str(question.id) not in stated:
                built.left_out["questions: the right answer was not stated"] += 1
                continue
            others = sorted(
                (q for q in suited if q.question != question.question),
                key=lambda q: text_hash(f"{question.id}:{q.id}", self.seed),
            )
            like = next((q.answers[0] for q in others if _kind(q.answers[0]) == _kind(question.answers[0])), "")
            draw = int(text_hash(str(question.id), self.seed), 16)
            fabrications = {
                AnswerKind.GUESSED: guess,
                AnswerKind.EXCHANGED: exchange_answer(right, question.answers, like),
                AnswerKind.FALSIFIED: exchange_answer(right, question.answers, wrong),
                AnswerKind.OFF_SUBJECT: next((stated[str(q.id)] for q in others if str(q.id) in stated), ""),
                AnswerKind.NOTHING_FOUND: NOTHING_FOUND[draw % len(NOTHING_FOUND)],
            }
            candidates = {AnswerKind.RIGHT: right}
            for kind, text in fabrications.items():
                if not text:
                    built.left_out[f"{kind}: none could be made"] += 1
                elif is_right(text, question):
                    built.left_out[f"{kind}: it holds the right answer"] += 1
                else:
                    candidates[kind] = text
            row = {
                "id": str(question.id),
                **({"subset": question.subset} if question.get("subset") else {}),
                "question": question.question,
                "answers": list(question.answers),
                "candidates": [{"kind": kind.value, "text": text} for kind, text in candidates.items()],
                "references": [asdict(reference) for reference in question.get("references") or ()],
            }
            built.rows.append(row)
        return built


def exchange_answer(right: str, answers: Sequence[str], other: str) -> str:
    """A right answer with another text in place of the gold answer; empty if the gold answer is not in it."""
    for gold in answers:
        place = re.search(rf"(?<!\w){re.escape(gold.strip())}(?!\w)", right, re.IGNORECASE)
        if place and other.strip():
            return right[: place.start()] + other.strip() + right[place.end() :]
    return ""


def _kind(gold: str) -> str:
    """A gold answer is replaced only by its like: a number by a number, a name by a name."""
    if re.search(r"\d", gold):
        return "number"
    words = gold.split()
    return "name" if all(word[:1].isupper() for word in words) else f"words, {'one' if len(words) == 1 else 'several'}"
