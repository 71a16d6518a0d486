"""A polite reply to a remark, which is no question."""

from __future__ import annotations

import dspy

from typedrag.events import Read, emit
from typedrag.lms.asking import ask
from typedrag.lms.trail import record
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.records import Step
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import ReplyToRemark


class Remark(Strategy):
    """reply, without retrieval"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.reply = dspy.Predict(ReplyToRemark)

    def forward(self, question: str) -> dspy.Prediction:
        """Reply to a remark; see `Strategy.forward`."""
        emit(Read, passages=())
        reply = ask("reply", self.reply, retries=self.options.retries, remark=question)
        record(Step("reply", question, reply.prediction.answer, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(answer=reply.prediction.answer.strip())
