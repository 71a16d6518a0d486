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
from typedrag.signatures.fields import number_passages
from typedrag.trail import record


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
            that the answer cites and uses, see `check_citations`).

        Raises:
            NothingFound: If there is no passage.
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be used.
        """
        if not passages:
            raise NothingFound(question)
        seen = tuple(passages[: self.options.answer_passages])
        numbered = number_passages(seen, self.options.passage_words)
        reply = ask(
            "answer",
            self.predict,
            retries=self.options.retries,
            passages=numbered,
            question=question,
            **inputs,
        )
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
