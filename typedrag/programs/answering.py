"""An answer written from passages, with citations that can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.errors import StepFailed
from typedrag.events import Read, emit
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step
from typedrag.programs.citations import check_citations
from typedrag.programs.options import Options
from typedrag.records import Answered, Passage, Step
from typedrag.retrieval.relevance import build_relevance_filter
from typedrag.signatures.fields import Citations, number_passages


class NotAnswered(StepFailed):
    """The collection holds no answer: no passage was found, or none of those found answers the question.

    Args:
        step: The step that failed.
        problem: What is missing.
        passages: Those that the LM saw.
    """

    def __init__(self, step: str, problem: str, passages: Sequence[Passage] = ()) -> None:
        super().__init__(step, problem)
        self.passages = tuple(passages)


class NothingFound(NotAnswered):
    """No passage was found, or none of those found passes the gate."""

    def __init__(self, query: str, count: int = 0) -> None:
        if count:
            super().__init__("relevance", f"none of {count} passages found for '{query}' is relevant")
        else:
            super().__init__("retrieve", f"no passage found for '{query}'")


class AnswerFailed(StepFailed):
    """No answer could be read from the LM's replies.

    Args:
        failure: The failure of the step.
        passages: Those that the LM saw.
    """

    def __init__(self, failure: StepFailed, passages: Sequence[Passage]) -> None:
        super().__init__(failure.step, failure.problem)
        self.passages = tuple(passages)


def is_final(failure: StepFailed) -> bool:
    """True if passages were read and hold no answer, so that no other way of answering is tried."""
    return isinstance(failure, NotAnswered) and not isinstance(failure, NothingFound)


def answer_without_passages(predict: dspy.Predict, question: str, *, retries: int) -> dspy.Prediction:
    """Answer from the LM's own knowledge.

    Args:
        predict: A predictor of the signature `AnswerWithoutPassages`.
        question: The question.
        retries: How often to ask again.

    Raises:
        StepFailed: If no reply can be parsed.
        LMUnavailable: If the LM cannot be used.
    """
    emit(Read, passages=())
    reply = ask("answer", predict, retries=retries, question=question)
    answer = reply.prediction.answer.strip()
    add_step(Step("answer", question, answer, seconds=reply.seconds, usage=reply.usage))
    return dspy.Prediction(answer=answer, passages=(), citations=(), answered=Answered.KNOWLEDGE)


class PassageAnswerer(dspy.Module):
    """Writes an answer from passages.

    Args:
        signature: Has the inputs `passages` and `question`, perhaps more, and the outputs `answer`,
            `answered` and `citations`; a plain one has the answer alone.
        options: The program's options.
    """

    def __init__(self, signature: type[dspy.Signature], options: Options) -> None:
        super().__init__()
        self.predict = dspy.Predict(signature)
        self.options = options
        self.gate = build_relevance_filter(
            options.relevance,
            options.relevance_threshold,
            passage_words=options.passage_words,
            retries=options.retries,
        )

    @property
    def lm_calls(self) -> int:
        """The LM calls of one answer, without retries."""
        return 1 + (self.gate.lm_calls if self.gate else 0)

    def forward(self, question: str, passages: Sequence[Passage], **inputs: Any) -> dspy.Prediction:
        """Answer from the first `answer_passages` passages that pass the gate (option `relevance`).

        The LM's `answered` decides whether the passages hold an answer; if it is false, an answer that was written
        anyway is dropped, even with citations. If it is true, an answer without citations is kept, though ungrounded.

        Returns:
            A prediction with `answer`, `passages` (those the LM saw), `citations` (ids of the passages
            that the answer cites and uses, see `check_citations`) and `answered`.

        Raises:
            NothingFound: If there is no passage, or none passes the gate.
            NotAnswered: If the passages hold no answer.
            AnswerFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
            RetrievalError: If the gate's model is not on this machine or cannot be loaded.
        """
        relevant = self.gate.relevant(question, passages) if self.gate else passages
        if not relevant:
            raise NothingFound(question, len(passages))
        shown = tuple(relevant[: self.options.answer_passages])
        emit(Read, passages=shown)
        numbered = number_passages(shown, self.options.passage_words)
        try:
            reply = ask(
                "answer",
                self.predict,
                retries=self.options.retries,
                passages=numbered,
                question=question,
                **inputs,
            )
        except StepFailed as failure:
            raise AnswerFailed(failure, shown) from failure
        answer = reply.prediction.answer.strip()
        if not reply.prediction.get("answered", True):
            dropped = (f"{answer} (the LM says that the passages hold no answer)",) if answer else ()
            add_step(
                Step("answer", question, "not answered", dropped=dropped, seconds=reply.seconds, usage=reply.usage)
            )
            raise NotAnswered("answer", f"the passages do not answer '{question}'", shown)
        citations = reply.prediction.get("citations", Citations([])).root
        cited = check_citations(citations, answer, shown, question)
        add_step(
            Step(
                "answer",
                question,
                answer,
                passage_ids=cited.ids,
                dropped=cited.dropped,
                seconds=reply.seconds,
                usage=reply.usage,
            )
        )
        return dspy.Prediction(answer=answer, passages=shown, citations=cited.ids, answered=Answered.PASSAGES)
