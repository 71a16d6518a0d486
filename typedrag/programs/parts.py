"""What comes of the parts of a question: answers to some, and why there are none to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from typedrag.errors import StepFailed
from typedrag.events import SubAnswered, answering_part, emit
from typedrag.lms.asking import ask
from typedrag.lms.trail import fall_back, record, recording, run_concurrently
from typedrag.programs.answering import NotAnswered
from typedrag.programs.citations import check_citations
from typedrag.records import Answered, Passage, Step, SubAnswer
from typedrag.signatures.fields import QuestionAnswer


@dataclass(frozen=True)
class Part:
    """What came of one part of a question.

    Attributes:
        query: It was asked by.
        answer: None if there is none.
        passages: It was answered from.
        failure: Why there is no answer; None if there is one.
        perspective: Whose it is, in a debate.
        steps: That were gone.
    """

    query: str
    answer: SubAnswer | None = None
    passages: tuple[Passage, ...] = ()
    failure: StepFailed | None = None
    perspective: str = ""
    steps: tuple[Step, ...] = ()

    @property
    def outcome(self) -> str:
        """The answer, or why there is none."""
        return self.answer.answer if self.answer else str(self.failure)


def answer_parts(
    answers: Mapping[str, Callable[[], dspy.Prediction]],
    threads: int,
    *,
    perspectives: Mapping[str, str] | None = None,
    dropped: tuple[str, ...] = (),
) -> list[Part]:
    """What comes of answering the parts of a question at once, recorded as one step with the way of each below it.

    Args:
        answers: By sub-query, what answers it.
        threads: Parts under way at once.
        perspectives: By sub-query, whose it is.
        dropped: Of the step: parts that are left out, with the reason.
    """
    sides = perspectives or {}
    parts = run_concurrently(lambda item: _answer_part(*item, sides.get(item[0], "")), list(answers.items()), threads)
    ways = tuple(Step("sub-query", part.query, part.outcome, steps=part.steps) for part in parts)
    record(Step("sub-queries", f"{len(parts)} sub-queries", dropped=dropped, steps=ways))
    return parts


def _answer_part(query: str, answer: Callable[[], dspy.Prediction], perspective: str) -> Part:
    with recording() as steps, answering_part(query):
        try:
            made = answer()
        except StepFailed as failure:
            return Part(query, failure=failure, perspective=perspective, steps=tuple(steps))
        sub_answer = SubAnswer(query, made.answer, made.citations, perspective, made.answered)
        emit(SubAnswered, sub_answer=sub_answer)
    return Part(query, sub_answer, made.passages, perspective=perspective, steps=tuple(steps))


def answers_of(parts: Sequence[Part]) -> list[SubAnswer]:
    """The answers to those parts that have one; that a step of others failed is recorded.

    Raises:
        NotAnswered: If the collection says nothing on any of the parts.
        StepFailed: If no part is answered, and a step of one failed.
    """
    answers = [part.answer for part in parts if part.answer]
    silent = [part.failure for part in parts if isinstance(part.failure, NotAnswered)]
    failed = [part.failure for part in parts if part.failure and not isinstance(part.failure, NotAnswered)]
    if not answers and failed:
        raise StepFailed("sub-queries", f"none of {len(parts)} is answered ({failed[0]})")
    if not answers:
        seen = _distinct(passage for failure in silent for passage in failure.passages)
        raise NotAnswered("sub-queries", f"none of {len(parts)} is answered", seen) if seen else silent[0]
    if failed:
        fall_back(failed[0], f"{len(failed)} of {len(parts)} sub-queries not answered")
    return answers


def pairs_of(answers: Iterable[SubAnswer]) -> list[QuestionAnswer]:
    """What the LM that combines answers to parts is shown of them."""
    return [QuestionAnswer(question=a.sub_query, answer=a.answer) for a in answers]


def combine(
    step: str,
    predict: dspy.Predict,
    otherwise: str,
    said: str = "the sub-answers are given one after the other",
    *,
    retries: int,
    question: str,
    **inputs: Any,
) -> str:
    """One answer out of those to parts, as the LM writes it; another text, and what is said of that, if it does not."""
    try:
        reply = ask(step, predict, retries=retries, question=question, **inputs)
    except StepFailed as failure:
        fall_back(failure, said)
        return otherwise
    answer = str(reply.prediction.answer.strip())
    record(Step(step, question, answer, seconds=reply.seconds, usage=reply.usage))
    return answer


def combined(answer: str, parts: Sequence[Part]) -> dspy.Prediction:
    """The prediction of an answer that was made out of those to parts, with all their passages and citations.

    It cites nothing if what the LM knows is a part of it.
    """
    answers = [part.answer for part in parts if part.answer]
    from_passages = all(a.answered is Answered.PASSAGES for a in answers)
    citations = tuple(dict.fromkeys(i for a in answers for i in a.passage_ids))
    return dspy.Prediction(
        answer=answer,
        passages=_distinct(passage for part in parts for passage in part.passages),
        citations=citations if from_passages else (),
        answered=Answered.PASSAGES if from_passages else Answered.KNOWLEDGE,
    )


def citing_what_it_uses(made: dspy.Prediction, question: str) -> dspy.Prediction:
    """A combined answer that cites, of the passages its parts cite, those alone that it still uses something of.

    What else the parts said is gone from it. Not for short answers to questions of several hops, which name
    nothing of the passages on the way.
    """
    numbers = {passage.id: number for number, passage in enumerate(made.passages, 1)}
    cited = check_citations([numbers[i] for i in made.citations], made.answer, made.passages, question)
    if cited.dropped:
        record(Step("cite", question, passage_ids=cited.ids, dropped=cited.dropped))
    return dspy.Prediction(**{**made.toDict(), "citations": cited.ids})


def _distinct(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple({passage.id: passage for passage in passages}.values())
