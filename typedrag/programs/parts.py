"""The parts of a question and their answers, or the reasons why a part has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from typedrag.errors import StepFailed
from typedrag.events import SubAnswered, emit, events_of_part
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, collect_steps, record_fallback, run_concurrently
from typedrag.programs.answering import NotAnswered
from typedrag.programs.citations import check_citations
from typedrag.records import Answered, Passage, Step, SubAnswer
from typedrag.signatures.fields import QuestionAnswer


@dataclass(frozen=True)
class Part:
    """One part of a question with its answer or failure.

    Attributes:
        query: The sub-query of the part.
        answer: Its answer; None if there is none.
        passages: The passages that it was answered from.
        failure: Why there is no answer; None if there is one.
        perspective: The perspective of the part, in a debate.
        steps: The steps taken to answer it.
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
    """Answer the parts of a question concurrently; recorded as one step with the steps of each part below it.

    Args:
        answers: The function that answers each sub-query.
        threads: The number of parts answered at once.
        perspectives: The perspective of each sub-query, in a debate.
        dropped: The parts that are left out, with the reason, for the recorded step.
    """
    sides = perspectives or {}
    parts = run_concurrently(lambda item: _answer_part(*item, sides.get(item[0], "")), list(answers.items()), threads)
    ways = tuple(Step("sub-query", part.query, part.outcome, steps=part.steps) for part in parts)
    add_step(Step("sub-queries", f"{len(parts)} sub-queries", dropped=dropped, steps=ways))
    return parts


def _answer_part(query: str, answer: Callable[[], dspy.Prediction], perspective: str) -> Part:
    with collect_steps() as steps, events_of_part(query):
        try:
            prediction = answer()
        except StepFailed as failure:
            return Part(query, failure=failure, perspective=perspective, steps=tuple(steps))
        sub_answer = SubAnswer(query, prediction.answer, prediction.citations, perspective, prediction.answered)
        emit(SubAnswered, sub_answer=sub_answer)
    return Part(query, sub_answer, prediction.passages, perspective=perspective, steps=tuple(steps))


def answers_of(parts: Sequence[Part]) -> list[SubAnswer]:
    """The answers of the parts that have one; failures of other parts are recorded.

    Raises:
        NotAnswered: If the collection answers no part.
        StepFailed: If no part is answered, and a step of one failed.
    """
    answers = [part.answer for part in parts if part.answer]
    silent = [part.failure for part in parts if isinstance(part.failure, NotAnswered)]
    failed = [part.failure for part in parts if part.failure and not isinstance(part.failure, NotAnswered)]
    if not answers and failed:
        raise StepFailed("sub-queries", f"none of {len(parts)} is answered ({failed[0]})")
    if not answers:
        passages = _distinct(passage for failure in silent for passage in failure.passages)
        raise NotAnswered("sub-queries", f"none of {len(parts)} is answered", passages) if passages else silent[0]
    if failed:
        record_fallback(failed[0], f"{len(failed)} of {len(parts)} sub-queries not answered")
    return answers


def pairs_of(answers: Iterable[SubAnswer]) -> list[QuestionAnswer]:
    """The answers to parts as the LM that combines them is shown them."""
    return [QuestionAnswer(question=a.sub_query, answer=a.answer) for a in answers]


def combine(
    step: str,
    predict: dspy.Predict,
    otherwise: str,
    fallback: str = "the sub-answers are given one after the other",
    *,
    retries: int,
    question: str,
    **inputs: Any,
) -> str:
    """One answer that the LM combines from those to parts; `otherwise` if that fails, recorded as `fallback`."""
    try:
        reply = ask(step, predict, retries=retries, question=question, **inputs)
    except StepFailed as failure:
        record_fallback(failure, fallback)
        return otherwise
    answer = str(reply.prediction.answer.strip())
    add_step(Step(step, question, answer, seconds=reply.seconds, usage=reply.usage))
    return answer


def combined(answer: str, parts: Sequence[Part]) -> dspy.Prediction:
    """The prediction of an answer combined from those to parts, with all their passages and citations.

    It cites nothing if a part was answered from the LM's own knowledge.
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


def citing_what_it_uses(answer: dspy.Prediction, question: str) -> dspy.Prediction:
    """The combined answer, with only those citations of its parts that it still uses.

    Not for short answers to questions of several hops, which do not name what the passages in between say.
    """
    numbers = {passage.id: number for number, passage in enumerate(answer.passages, 1)}
    cited = check_citations([numbers[i] for i in answer.citations], answer.answer, answer.passages, question)
    if cited.dropped:
        add_step(Step("cite", question, passage_ids=cited.ids, dropped=cited.dropped))
    return dspy.Prediction(**{**answer.toDict(), "citations": cited.ids})


def _distinct(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple({passage.id: passage for passage in passages}.values())
