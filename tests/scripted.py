"""An LM that replies by script, for tests of control flow: it sees the real prompts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage
from dspy.utils.exceptions import LMTransportError

from typedrag.lms.adapter import SchemaAdapter
from typedrag.signatures import all_signatures

signatures: Any = SimpleNamespace(**all_signatures())
"""All signatures by their names."""

Reply = dict[str, Any] | str | Exception | Callable[[str], Any]


class ScriptedEngine:
    """Replies by the signature that is asked for.

    A reply is the output fields, the raw text, an error to raise, or a function of the prompt that
    gives one of these. An answer from passages that says nothing of whether they hold one is answered.
    """

    def __init__(self, replies: dict[type[dspy.Signature], Reply], seconds: float = 0.0) -> None:
        self.replies = {**DEFAULTS, **replies}
        self.seconds = seconds
        self.prompts: list[tuple[str, str]] = []
        self.systems: list[str] = []
        self.messages: list[tuple[Message, ...]] = []

    def complete(self, request: Request) -> Response:
        system, prompt = str(request.system), request.messages[-1].text
        signature = next(s for s in self.replies if _first_words(s) in " ".join(system.split()))
        self.prompts.append((signature.__name__, prompt))
        self.systems.append(system)
        self.messages.append(tuple(request.messages))
        time.sleep(self.seconds)
        reply = self.replies[signature]
        if callable(reply) and not isinstance(reply, Exception):
            reply = reply(prompt)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, dict) and "answered" in signature.output_fields:
            reply = {"answered": True, **reply}
        return respond(request, reply)

    def asked(self) -> list[str]:
        """The names of the signatures asked for, in order."""
        return [name for name, _ in self.prompts]

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptedEngine:
        return self


def respond(request: Request, reply: dict[str, Any] | str) -> Response:
    """A response that costs 15 tokens, with these fields or this text."""
    said = Message.assistant(reply if isinstance(reply, str) else json.dumps(reply))
    usage = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
    return Response(id=None, model=request.model, message=said, finish_reason="stop", usage=usage)


def gone() -> LMTransportError:
    """The error of an LM whose server is not there any more."""
    error = LMTransportError("gone")
    error.__cause__ = ConnectionRefusedError()
    return error


@contextmanager
def scripted(replies: dict[type[dspy.Signature], Reply] | None = None, **settings: Any) -> Iterator[ScriptedEngine]:
    """Run programs within on a scripted LM."""
    engine = ScriptedEngine(replies or {}, seconds=settings.pop("seconds", 0.0))
    lm = dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=True)
    with dspy.context(lm=lm, adapter=SchemaAdapter(), **settings):
        yield engine


def _first_words(signature: type[dspy.Signature]) -> str:
    return " ".join(signature.instructions.split())[:60]


DEFAULTS: dict[type[dspy.Signature], Reply] = {
    signatures.ClassifyQuestion: {"question_type": "reason"},
    signatures.FrameComparison: {
        "is_comparison": True,
        "purpose": "how they differ",
        "items_compared": ["nuclear power", "wind power"],
    },
    signatures.ExtractKeywords: {"keywords": ["cycling to work", "tips"]},
    signatures.ComparisonPlainly: {
        "is_comparison": True,
        "purpose": "differences",
        "items_compared": ["nuclear power", "wind power"],
    },
    signatures.KeywordsPlainly: {"keywords": ["cycling to work", "tips"]},
    signatures.DecomposeReason: {
        "sub_queries": ["Does cold dough make bread dense?", "Does too much flour make bread heavy?"]
    },
    signatures.DecomposeInstruction: {
        "sub_queries": ["How do I prepare the walls for paint?", "How do I roll paint on walls?"]
    },
    signatures.ParaphraseReason: {
        "sub_queries": ["What makes homemade bread dense?", "For what reason is bread from home heavy?"]
    },
    signatures.ParaphraseInstruction: {
        "sub_queries": ["How are the walls of a room painted?", "What is the way to paint a room?"]
    },
    signatures.FrameSides: {
        "topic": "school uniforms",
        "sides": [
            {"perspective": "for", "sub_query": "How do school uniforms help pupils?"},
            {"perspective": "against", "sub_query": "How do school uniforms limit pupils?"},
        ],
    },
    signatures.FrameDebate: {
        "is_debate": True,
        "topic": "school uniforms",
        "sides": [
            {"perspective": "for", "sub_query": "How do school uniforms help pupils?"},
            {"perspective": "against", "sub_query": "How do school uniforms limit pupils?"},
        ],
    },
    signatures.ExploreSubAspects: {"sub_aspects": ["costs", "the danger of accidents", "work of volunteers"]},
    signatures.VaryQuery: {
        "queries": ["What makes homemade bread heavy?", "Why does bread baked at home not rise well?"]
    },
    signatures.GradePassage: {"grade": 2},
    signatures.OrderPassages: {"order": [2, 1]},
    signatures.ClassifyDocumentScope: {"scope": "single-document"},
    signatures.RewriteForSparse: {"sparse_query": "dense heavy homemade bread causes"},
    signatures.RewriteForDense: {"dense_query": "Why is homemade bread dense and heavy?"},
    signatures.SplitQuestion: {
        "two_sub_questions": ["How does nuclear power work?", "How does wind power work?"],
    },
    signatures.AnswerAfterReasoning: {
        "reasoning": "The first two help.",
        "citations": [1, 2],
        "answer": "AnswerAfterReasoning says so.",
    },
    signatures.AnswerComparison: {
        "citations": [1, 2],
        "findings": [{"criterion": "steadiness", "speaks_for": "nuclear power"}],
        "answer": "AnswerComparison says so.",
    },
    **{
        signature: {"citations": [1, 2], "answer": f"{signature.__name__} says so."}
        for signature in (
            signatures.AnswerFromPassages,
            signatures.AnswerExperience,
            signatures.AnswerReason,
            signatures.AnswerInstruction,
            signatures.AnswerDebate,
            signatures.AnswerSubQuery,
            signatures.AnswerFromPerspective,
            signatures.AnswerRichly,
            signatures.AnswerByAspects,
            signatures.AnswerDirectly,
            signatures.AnswerAsExpert,
            signatures.AnswerInSentences,
            signatures.AnswerInPhrase,
        )
    },
    **{
        signature: {"answer": f"{signature.__name__} says so."}
        for signature in (
            signatures.AnswerPlainly,
            signatures.AnswerInPhrasePlainly,
            signatures.AnswerDirectlyPlainly,
            signatures.AnswerAsExpertPlainly,
            signatures.AnswerInSentencesPlainly,
            signatures.AnswerAfterReasoningPlainly,
            signatures.AnswerRichlyPlainly,
            signatures.AnswerByAspectsPlainly,
            signatures.ComparePlainly,
            signatures.TellPlainly,
            signatures.AggregateParaphrases,
            signatures.AggregateReasons,
            signatures.ArrangeSteps,
            signatures.MediatePerspectives,
            signatures.MediatePlainly,
            signatures.AnswerWithoutPassages,
            signatures.ReplyToRemark,
            signatures.AnswerFromSubAnswers,
            signatures.AnswerInPhraseWithoutPassages,
            signatures.ComposeAnswer,
            signatures.ComposePhrase,
        )
    },
    signatures.RouteQuestion: {"route": "single-step"},
    signatures.JudgeComplexity: {"route": "single-step"},
    signatures.DecomposeCompound: {
        "sub_queries": ["When was the Forth Bridge opened?", "How long is the Forth Bridge?"]
    },
    signatures.RefineQuestion: {"query": "Who designed the Forth Bridge?"},
    signatures.JudgeRelevance: {"relevant": True},
    signatures.JudgeEnding: {"ending": True},
    signatures.StandaloneQuestion: {"standalone_question": "Why does rye bread turn out dense?"},
    signatures.ReasonOneStep: {"thought": "John Fowler designed the Forth Bridge.", "finished": True},
}
