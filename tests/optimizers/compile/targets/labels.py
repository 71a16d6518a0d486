"""What people might have said, small enough to reckon by hand, and a judge's LM that can learn it."""

from __future__ import annotations

import json

import dspy
from dspy.lm15 import Request, Response

from tests.experiments.labels import QUALITIES
from tests.scripted import respond
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Reference
from typedrag.datasets import Dataset
from typedrag.signatures.judging import RankAmongReferences
from typedrag.signatures.sub_question_coverage import FindAnswers, TypeSubQuestions

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType
LEARNT = "Look at the first word."
"""The instruction by which the LM judges as people do; without it, it says the same of all."""
_TYPES = {"Core": CORE, "Background": BACKGROUND, "Next": FOLLOW_UP}
_RANKS = {"Great": 1, "Fine": 2, "Poor": 3, **{word: 5 - label for word, label in QUALITIES.items()}}


def ranked(questions: int = 8) -> Dataset:
    """Three answers of each of three labels to each question."""
    examples = [
        dspy.Example(
            id=f"q{q}",
            question=f"Why is thing {q} so?",
            references=tuple(
                Reference(f"{word} answer {n} to {q}.", 4 - rank)
                for word, rank in list(_RANKS.items())[:3]
                for n in "abc"
            ),
        ).with_inputs("question")
        for q in range(questions)
    ]
    return Dataset("antique", tuple(examples))


def covered(questions: int = 4, sub_questions: int = 12) -> Dataset:
    """An answer to each question, which answers every third sub-question."""
    rows = [
        dspy.Example(
            id=f"{q}-{n}",
            question=f"Why is thing {q} so?",
            answer=f"Because of cause {q}.",
            sub_question=f"{'Yes' if n % 3 == 0 else 'No'}, what about {n} of {q}?",
            covered=n % 3 == 0,
            fragment=f"cause {q}" if n % 3 == 0 else "",
        )
        for q in range(questions)
        for n in range(sub_questions)
    ]
    return Dataset("sub-question-coverage", tuple(rows))


def typed(questions: int = 6) -> Dataset:
    """Sub-questions of each type to each question, and one on which people are divided."""
    rows = [
        dspy.Example(
            id=f"{q}-{word}",
            question=f"Why is thing {q} so?",
            sub_question=f"{word}, what about {q}?",
            annotated_types=(type, type, CORE) if word != "Divided" else (CORE, BACKGROUND),
        )
        for q in range(questions)
        for word, type in {**_TYPES, "Divided": CORE}.items()
    ]
    return Dataset("sub-question-types", tuple(rows))


def rank(prompt: str, learnt: bool) -> dict:
    words = prompt.rpartition("[[ ## candidate ## ]]\n")[2].split()
    return {"rank": next(_RANKS[word] for word in words if word in _RANKS) if learnt else 2}


def find(prompt: str, learnt: bool) -> dict:
    cause = prompt.partition("Because of ")[2].partition(".")[0]
    asked = json.loads(prompt.rpartition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
    yes = {key: learnt and text.startswith("Yes") for key, text in asked.items()}
    return {"verdicts": {key: {"fragment": cause if y else "", "answered": y} for key, y in yes.items()}}


def type_(prompt: str, learnt: bool) -> dict:
    asked = json.loads(prompt.rpartition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
    return {"types": {k: str(_TYPES[text.partition(",")[0]]) if learnt else "core" for k, text in asked.items()}}


REPLIES = {RankAmongReferences: rank, FindAnswers: find, TypeSubQuestions: type_}


def learning_lm() -> dspy.LM:
    """An LM that judges as people do once it is told to: what a good compile makes of a judge."""
    return dspy.LM("scripted/judge", engine=_Learning(), num_retries=0, cache=False, temperature=0.0)


class _Learning:
    supports_response_schema = True
    supported_params = ("response_format",)

    def complete(self, request: Request) -> Response:
        learnt = LEARNT in str(request.system)
        kind = next(s for s in REPLIES if f"- {next(iter(s.output_fields))}" in str(request.system))
        return respond(request, REPLIES[kind](request.messages[-1].text, learnt))

    def __deepcopy__(self, memo: dict) -> _Learning:
        return self
