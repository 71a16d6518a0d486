"""IRCoT: retrieval and reasoning take turns (Trivedi et al. 2023), as HANRAG's baseline for complex questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, calls_left, record_fallback
from typedrag.programs.answering import PassageAnswerer, of_length
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.retrieving import Retrieving
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import AnswerFromPassages
from typedrag.signatures.fields import number_passages
from typedrag.signatures.hanrag import ReasonOneStep


@program
class IRCoT(Program):
    """question ─► (retrieve ─► one sentence of reasoning) again and again ─► answer"""

    name: ClassVar[str] = "ircot"
    reads = (RETRIEVING - {"answer_passages"}) | {"ircot"}

    def build(self, retriever: Retriever) -> None:
        """One strategy for all questions."""
        self.strategy = InterleavedReasoning(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the passages found on the way."""
        return self.strategy(question=question)


class InterleavedReasoning(Retrieving):
    """┌► retrieve ─► one sentence of reasoning ─► finished? ─┬─ yes ─► answer from all that was collected
    └─ the sentence is the next query ◄─── no ──────────────┘
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        most = options.ircot.max_passages
        super().__init__(retriever, reranker, options.model_copy(update={"answer_passages": most}))
        self.reason = dspy.Predict(ReasonOneStep)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), self.options)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer by way of reasoning; see `Program.respond`."""
        collected: dict[str, Passage] = {}
        thoughts: list[str] = []
        query = question
        while True:
            [passages] = self.search([query], rerank=True)
            for passage in self.rerank(query, passages, self.options.top_k):
                if len(collected) < self.options.ircot.max_passages:
                    collected.setdefault(passage.id, passage)
            try:
                query, finished = self._think(question, list(collected.values()), thoughts)
            except StepFailed as failure:
                record_fallback(failure, "answered from what was found by then")
                break
            if finished or not query or query in thoughts or len(thoughts) + 1 == self.options.ircot.max_steps:
                break
            if calls_left(default=2) < 2:  # one is for the answer
                break
            thoughts.append(query)
        return self.final_answer(self.answer, question, list(collected.values()))

    def _think(self, question: str, passages: Sequence[Passage], thoughts: Sequence[str]) -> tuple[str, bool]:
        """The next sentence of reasoning, and whether it is the last."""
        shown = number_passages(passages, self.options.passage_words)
        reply = ask(
            "reason",
            self.reason,
            retries=self.options.retries,
            passages=shown,
            question=question,
            thoughts=list(thoughts),
        )
        thought = " ".join(reply.prediction.thought.split())
        add_step(Step("reason", question, thought, seconds=reply.seconds, usage=reply.usage))
        return thought, reply.prediction.finished
