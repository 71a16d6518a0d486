"""Comparison questions need passages on each of the items they compare (Typed-RAG, section 3.2)."""

from __future__ import annotations

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step
from typedrag.programs.answering import PassageAnswerer, as_asked
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import AnswerComparison
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.typed_rag import FrameComparison


class Comparison(Strategy):
    """purpose and items ─► retrieve per item ─► drop duplicates ─► rerank ─► answer to the purpose

    With the option `comparison_search` items are joined to the question, which is searched for, too.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.frame = predictor(FrameComparison, stories=options.answer_prompt == "cited")
        self.answer = PassageAnswerer(as_asked(AnswerComparison, options), options)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer from passages on each item; see `Strategy.forward`."""
        reply = ask("decompose", self.frame, retries=self.options.retries, question=question)
        frame = reply.prediction
        items = list(dict.fromkeys(item.strip() for item in frame.items_compared.root if item.strip()))
        parts = f"{frame.purpose}: {'; '.join(items)}"
        add_step(Step("decompose", question, parts, seconds=reply.seconds, usage=reply.usage))
        if not frame.is_comparison or len(items) < 2:
            raise StepFailed("decompose", "no comparison of two or more items was found in the question")
        joined = self.options.comparison_search == "joined"
        queries = [question, *(f"{question} {item}" for item in items)] if joined else items
        passages = self.pool(question, self.search(queries, rerank=True))
        return self.final_answer(
            self.answer, question, passages, purpose=frame.purpose, items_compared=frame.items_compared
        )
