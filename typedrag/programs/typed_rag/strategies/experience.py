"""Experience questions are searched for by their keywords (Typed-RAG, section 3.3)."""

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
from typedrag.signatures.answering import AnswerExperience
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.typed_rag import ExtractKeywords


class Experience(Strategy):
    """keywords ─► retrieve ─► rerank by the keywords ─► answer

    All keywords make one query: one such as "best" finds nothing of use by itself.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.extract_keywords = predictor(ExtractKeywords, stories=options.answer_prompt == "cited")
        self.answer = PassageAnswerer(as_asked(AnswerExperience, options), options)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer from the passages found by the keywords; see `Strategy.forward`."""
        reply = ask("decompose", self.extract_keywords, retries=self.options.retries, question=question)
        keywords = " ".join(dict.fromkeys(" ".join(reply.prediction.keywords.root).split()))
        add_step(Step("decompose", question, keywords, seconds=reply.seconds, usage=reply.usage))
        if not keywords:
            raise StepFailed("decompose", "no keywords were found in the question")
        query = f"{question} {keywords}" if self.options.experience_search == "joined" else keywords
        [passages] = self.search([query], rerank=True)
        best = self.rerank(keywords, passages, self.options.top_k)
        return self.final_answer(self.answer, question, best)
