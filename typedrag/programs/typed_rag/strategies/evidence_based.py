"""Evidence-based questions have a single aspect (Typed-RAG, section 3.1)."""

from __future__ import annotations

import dspy

from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import PassageAnswerer
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.records import Passage
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import AnswerFromPassages
from typedrag.texts.words import content_words


class EvidenceBased(Strategy):
    """retrieve(question) ─► answer"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), options)

    def forward(self, question: str, about_it: bool = False) -> dspy.Prediction:
        """Answer from the passages found for the question itself; see `Strategy.forward`.

        Args:
            question: The question.
            about_it: Whether only passages count that hold half of the question's content words. Small talk shares a
                word with some passage of any collection.
        """
        reranks = self.options.rerank_everywhere
        [passages] = self.search([question], rerank=reranks)
        if reranks:
            passages = self.rerank(question, passages, self.options.top_k)
        if about_it:
            passages = [passage for passage in passages if _is_about(question, passage)]
        return self.final_answer(self.answer, question, passages)


def _is_about(question: str, passage: Passage) -> bool:
    asked = content_words(question) - content_words(_SMALL_TALK)
    return bool(asked) and 2 * len(asked & content_words(passage.titled)) >= len(asked)


_SMALL_TALK = "hello hi hey thanks thank thx cheers please sorry ok okay lol haha bye goodbye yes no yeah test testing"
"""Words that tell no subject in a remark."""
