"""Typed-RAG: the type of the question decides how it is answered (paper 1, figure 2)."""

from typing import ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.events import Classified, emit
from typedrag.core.question_types import QuestionType
from typedrag.lms.trace import record_fallback
from typedrag.programs.answering import NotAnswered, is_final
from typedrag.programs.coverage import CoverageRounds
from typedrag.programs.program import Program, program
from typedrag.programs.typed_rag.strategies import STRATEGIES, NoDecomposition
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier, record_type
from typedrag.retrieval import Retriever

_SURELY_SMALL_TALK = 0.8
"""The least probability with which a text is small talk: a request that gets a polite reply is worse than small talk
that is answered."""


@program
class TypedRAG(Program):
    """question ─► classify ─► the strategy of its type

    A question is answered the evidence-based way if it is a factoid, if its type is unsure (option `type_threshold`),
    if the option `decompose` leaves out its type, or if the LM finds that it has one part. If a strategy fails (no
    usable decomposition, no readable sub-answer) or finds no passage, the evidence-based one answers, and `fallback`
    says so. Whatever is asked is searched for: only small talk that the collection says nothing on gets a polite
    reply. With the option `coverage_rounds`, the program searches again for what the answer leaves open.
    """

    name: ClassVar[str] = "typed_rag"
    typed = True
    reads = Program.reads - {"preqrag", "hanrag", "ircot", "adaptive", "richrag", "coverage_rerank"}

    def build(self, retriever: Retriever) -> None:
        self.classifier = build_type_classifier(self.options)
        if self.options.coverage_rounds:
            self.coverage = CoverageRounds(retriever, self.reranker, self.options)
        self.strategies = {
            question_type.value: strategy(retriever, self.reranker, self.options.for_type(question_type))
            for question_type, strategy in STRATEGIES.items()
        }

    def respond(self, question: str, question_type: QuestionType | None = None) -> dspy.Prediction:
        if question_type:
            named = record_type(question, question_type, source="the asker")
        else:
            try:
                named = self.classifier(question=question)
            except StepFailed as failure:
                record_fallback(failure, f"taken as {QuestionType.EVIDENCE_BASED}")
                named = dspy.Prediction(question_type=QuestionType.EVIDENCE_BASED, probability=None)
        question_type, least = QuestionType(named.question_type), self.options.type_threshold
        if question_type is QuestionType.NOT_A_QUESTION and self.options.reply_to_remarks:
            least = max(least, _SURELY_SMALL_TALK)
        unsure = named.probability is not None and named.probability < least
        emit(Classified, question_type=str(question_type), type_unsure=unsure)
        answered_as = QuestionType.EVIDENCE_BASED if unsure else question_type
        try:
            prediction = self._answer(question, answered_as)
            if self.options.coverage_rounds and prediction.get("passages"):
                prediction = self.coverage.improve(question, prediction)
        except NotAnswered as failure:
            prediction = self._reply(question, answered_as, failure)
        return dspy.Prediction(**{**prediction.toDict(), "question_type": question_type, "type_unsure": unsure})

    def _answer(self, question: str, question_type: QuestionType) -> dspy.Prediction:
        plain = self.strategies[QuestionType.EVIDENCE_BASED]
        if question_type is QuestionType.NOT_A_QUESTION:
            return plain(question=question, about_it=self.options.reply_to_remarks)
        strategy = self.strategies.get(question_type, plain)
        if strategy is not plain and self.options.decompose.has(question_type):
            try:
                return strategy(question=question)
            except NoDecomposition:
                pass
            except StepFailed as failure:
                if is_final(failure):
                    raise
                record_fallback(failure, "answered the evidence-based way")
        return plain(question=question)

    def _reply(self, question: str, question_type: QuestionType, failure: NotAnswered) -> dspy.Prediction:
        """A polite reply to small talk, else that the collection does not say."""
        if question_type is QuestionType.NOT_A_QUESTION and self.options.reply_to_remarks:
            try:
                return self.strategies[question_type](question=question)
            except StepFailed as unread:
                record_fallback(unread, "the answer is that the collection does not say")
        return self.not_answered(question, failure)
