"""An answer written from passages, with citations that can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.errors import StepFailed
from typedrag.programs.asking import Unreadable, ask
from typedrag.programs.options import Options
from typedrag.programs.trail import record
from typedrag.records import Passage, Step
from typedrag.signatures.fields import cited_passages, number_passages


class NothingFound(StepFailed):
    """No passage was found to answer from."""

    def __init__(self, query: str) -> None:
        super().__init__("retrieve", f"no passage found for '{query}'")


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

    def forward(self, question: str, passages: Sequence[Passage], **inputs: Any) -> dspy.Prediction:
        """Answer from the first `answer_passages` passages.

        Returns:
            A prediction with `answer`, `passages` (those the LM saw) and `citations` (ids of those
            that the answer says it uses). Cited numbers of passages it did not see are dropped.

        Raises:
            NothingFound: If there is no passage.
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
        """
        if not passages:
            raise NothingFound(question)
        seen = tuple(passages[: self.options.answer_passages])
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
        except Unreadable as failure:
            record(Step("answer", question, f"failed: {failure}", usage=failure.usage, seconds=failure.seconds))
            raise
        citations, unknown = cited_passages(reply.prediction.citations.root, seen)
        record(
            Step(
                "answer",
                question,
                reply.prediction.answer,
                passage_ids=tuple(citations),
                dropped=tuple(f"citation {n} (not one of the {len(seen)} passages)" for n in unknown),
                seconds=reply.seconds,
                usage=reply.usage,
            )
        )
        return dspy.Prediction(answer=reply.prediction.answer.strip(), passages=seen, citations=tuple(citations))
