"""Baselines: the LM alone, RAG, RAG-Fusion, and the dataset's own answers."""

from typing import ClassVar

import dspy

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trace import record_fallback
from typedrag.programs.answering import Retrieving
from typedrag.programs.program import ASKING, RETRIEVING, Program, StrategyProgram, program
from typedrag.programs.sub_queries import filter_reply, topic_similarity
from typedrag.programs.typed_rag.strategies import EvidenceBased
from typedrag.signatures.answering import AnswerFromPassages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.richrag import VaryQuery


@program
class DirectLM(Program):
    """question ─► answer"""

    name: ClassVar[str] = "direct_lm"
    reads = ASKING
    retrieves: ClassVar[bool] = False

    def respond(self, question: str) -> dspy.Prediction:
        return self.answer_from_lm(question)


@program
class RAG(StrategyProgram):
    """question ─► retrieve ─► (rerank) ─► answer"""

    name: ClassVar[str] = "rag"
    reads = RETRIEVING | {"rerank_everywhere"}
    strategy_class = EvidenceBased


class _Fusion(Retrieving):
    """Searches with variants of the question; with the question alone, as `fallback` says, if none can be read."""

    answers_by = AnswerFromPassages
    may_be_phrase = True

    def build(self) -> None:
        self.vary = predictor(VaryQuery)

    def forward(self, question: str) -> dspy.Prediction:
        try:
            reply = ask("decompose", self.vary, retries=self.options.retries, question=question)
            near, written = topic_similarity(self.retriever, self.reranker), reply.prediction.queries.root
            variants = filter_reply(reply, question, written, self.vary, self.options, near=near)
        except StepFailed as failure:
            variants = []
            record_fallback(failure, "searched with the question alone")
        passages = self.pool(question, self.search([question, *variants], rerank=True))
        return self.final_answer(self.answer, question, passages)


@program
class RAGFusion(StrategyProgram):
    """question ─► variants ─► retrieve for each ─► reciprocal rank fusion ─► (rerank) ─► answer"""

    name: ClassVar[str] = "rag_fusion"
    reads = RETRIEVING | {"max_sub_queries", "sift"}
    strategy_class = _Fusion


@program
class ReferenceAnswer(Program):
    """question ─► the dataset's own answer: the better of two that people compared, or the best reference

    No LM is asked. It answers questions of an evaluation alone.
    """

    name: ClassVar[str] = "reference"
    reads = frozenset({"max_question_chars"})
    retrieves: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = True

    def respond(self, question: str) -> dspy.Prediction:
        labels = call_context().labels
        if answers := labels.get("answers_compared"):
            return dspy.Prediction(answer=answers[0 if labels["preference"] > 0 else 1])
        if references := labels.get("references"):
            return dspy.Prediction(answer=references[0].text)
        raise InputError("the question has no answer of its own", "Evaluate 'reference' on a dataset that has answers")
