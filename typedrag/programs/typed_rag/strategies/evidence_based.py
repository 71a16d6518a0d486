"""Evidence-based questions have a single aspect (Typed-RAG, section 3.1)."""

from __future__ import annotations

import dspy

from typedrag.core.records import Passage
from typedrag.programs.answering import PassageAnswerer, of_length
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import AnswerFromPassages
from typedrag.text.words import content_words


class EvidenceBased(Strategy):
    """retrieve(question) ─► answer"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), options)

    def forward(self, question: str, about_it: bool = False) -> dspy.Prediction:
        """Answer from the passages found for the question itself; see `Strategy.forward`.

        Args:
            question: The question.
            about_it: Whether only passages count that hold three content words of the question, and two thirds of them.
                Small talk shares a word or two with some passage of any collection.
        """
        reranks = self.options.rerank_everywhere
        [passages] = self.search([question], rerank=reranks)
        if reranks:
            passages = self.rerank(question, passages, self.options.top_k)
        if about_it:
            passages = [passage for passage in passages if _is_about(question, passage)]
        return self.final_answer(self.answer, question, passages)


_FEWEST_SHARED = 3
"""Content words that a remark has in common with a passage on it, at least."""


def _is_about(question: str, passage: Passage) -> bool:
    words = {word for word in content_words(question) if len(word) > 2}  # not what an apostrophe parts
    shared = len(words & content_words(passage.titled))
    return shared >= max(_FEWEST_SHARED, 2 * len(words) / 3)
