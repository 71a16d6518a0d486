"""An answer written from passages, with citations that can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.asking import ask
from typedrag.errors import StepFailed
from typedrag.programs.citations import check_citations
from typedrag.programs.options import Options
from typedrag.records import Passage, Step
from typedrag.retrieval.gate import build_gate
from typedrag.signatures.fields import number_passages
from typedrag.trail import fall_back, record


class NothingFound(StepFailed):
    """No passage was found to answer from, or none of those found passes the gate."""

    def __init__(self, query: str, found: int = 0) -> None:
        if found:
            super().__init__("relevance", f"none of {found} passages found for '{query}' is relevant")
        else:
            super().__init__("retrieve", f"no passage found for '{query}'")


class AnswerFailed(StepFailed):
    """No answer could be read from the LM's replies.

    Args:
        failure: Of the step.
        passages: Those that the LM saw.
    """

    def __init__(self, failure: StepFailed, passages: Sequence[Passage]) -> None:
        super().__init__(failure.step, failure.problem)
        self.passages = tuple(passages)


def answer_without_passages(
    predict: dspy.Predict, question: str, *, retries: int, because: StepFailed | None = None
) -> dspy.Prediction:
    """Answer from what the LM knows, as a program does of itself or because a step failed.

    Args:
        predict: Of the signature `AnswerWithoutPassages`.
        question: To answer.
        retries: How often to ask again.
        because: The step that failed, if one did.

    Raises:
        StepFailed: If no reply can be parsed.
        LMUnavailable: If the LM cannot be used.
    """
    reply = ask("answer", predict, retries=retries, question=question)
    if because:
        fall_back(because, "answered without passages")
    answer = reply.prediction.answer.strip()
    record(Step("answer", question, answer, seconds=reply.seconds, usage=reply.usage))
    return dspy.Prediction(answer=answer, passages=(), citations=())


class PassageAnswerer(dspy.Module):
    """Writes an answer from passages.

    Args:
        signature: Has the inputs `passages` and `question`, perhaps more, and the outputs `answer`
            and `citations`.
        options: Of the program.
    """

    def __init__(self, signature: type[dspy.Signature], options: Options) -> None:
        super().__init__()
        self.predict = dspy.Predict(signature)
        self.options = options
        self.gate = build_gate(
            options.relevance,
            options.relevance_threshold,
            passage_words=options.passage_words,
            retries=options.retries,
        )

    @property
    def lm_calls(self) -> int:
        """What one answer takes, retries aside."""
        return 1 + (self.gate.lm_calls if self.gate else 0)

    def forward(self, question: str, passages: Sequence[Passage], **inputs: Any) -> dspy.Prediction:
        """Answer from the first `answer_passages` passages that pass the gate (option `relevance`).

        Returns:
            A prediction with `answer`, `passages` (those the LM saw) and `citations` (ids of those
            that the answer cites and uses, see `check_citations`).

        Raises:
            NothingFound: If there is no passage, or none passes the gate.
            AnswerFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
            RetrievalError: If the gate's model is not on this machine or cannot be loaded.
        """
        relevant = self.gate.passing(question, passages) if self.gate else passages
        if not relevant:
            raise NothingFound(question, len(passages))
        seen = tuple(relevant[: self.options.answer_passages])
        numbered = number_passages(seen, self.options.passage_words)
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
            raise AnswerFailed(failure, seen) from failure
        answer = reply.prediction.answer.strip()
        cited = check_citations(reply.prediction.citations.root, answer, seen, question)
        record(
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
        return dspy.Prediction(answer=answer, passages=seen, citations=cited.ids)
