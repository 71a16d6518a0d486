"""A polite reply to small talk that the collection says nothing on."""

from __future__ import annotations

import dspy

from typedrag.core.records import Answered, Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import ReplyToRemark


class Remark(Strategy):
    """reply, after a search that found nothing"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.reply = dspy.Predict(ReplyToRemark)

    def forward(self, question: str) -> dspy.Prediction:
        """Reply to a remark; see `Strategy.forward`."""
        reply = ask("reply", self.reply, retries=self.options.retries, remark=question)
        add_step(Step("reply", question, reply.prediction.answer, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(answer=reply.prediction.answer.strip(), answered=Answered.NOTHING)
