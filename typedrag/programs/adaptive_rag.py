"""Adaptive-RAG: retrieves not at all, once, or again and again (Jeong et al. 2024; HANRAG, section 5).

Its classifiers are modules that take a `question` and return a `dspy.Prediction` with `route`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import Route
from typedrag.core.records import Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import Stopwatch, add_step
from typedrag.programs.ircot import InterleavedReasoning
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, program
from typedrag.programs.retrieving import RoutedProgram
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.retrieval import Retriever
from typedrag.retrieval.local_models import loading, local_model
from typedrag.signatures.hanrag import JudgeComplexity

_LETTERS = {"A": Route.STRAIGHTFORWARD, "B": Route.SINGLE_STEP, "C": Route.COMPLEX}
"""What the authors' classifier writes."""
_MAX_TOKENS = 384


class LMComplexity(dspy.Module):
    """Asks the LM, with a prompt of ours."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.judge = dspy.Predict(JudgeComplexity)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        """The route that the LM names."""
        reply = ask("classify", self.judge, retries=self._retries, question=question)
        route = Route(reply.prediction.route)
        add_step(Step("classify", question, str(route), seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(route=route)


class TrainedComplexity(dspy.Module):
    """A T5 that was trained to write A, B or C for a question, as the authors' code trains it.

    Of the three the most probable is taken, whatever else it would write. It is loaded at the first question.

    Args:
        name: A folder, or its name on the Hugging Face hub.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, question: str) -> dspy.Prediction:
        """The route."""
        watch = Stopwatch()
        with _classifier(self.name) as (network, tokenizer, letters):
            import torch

            tokens = tokenizer(question, return_tensors="pt", truncation=True, max_length=_MAX_TOKENS)
            start = torch.tensor([[network.config.decoder_start_token_id]])
            with torch.inference_mode():
                logits = network(**tokens, decoder_input_ids=start).logits[0, -1]
        route = max(letters, key=lambda route: float(logits[letters[route]]))
        add_step(Step("classify", question, str(route), seconds=watch.seconds))
        return dspy.Prediction(route=route)


def build_complexity(options: Options) -> dspy.Module:
    """The classifier that the options name."""
    _, colon, name = options.adaptive.classifier.partition(":")
    return TrainedComplexity(name) if colon else LMComplexity(options)


@local_model
def _classifier(name: str) -> tuple[Any, Any, dict[Route, int]]:
    """A network, its tokenizer, and the token of each route's letter."""
    place = str(Path(name).expanduser())
    hint = "Check the name and the network, give a folder, or use adaptive.classifier=lm"
    with loading(f"the classifier '{name}'", hint, LMUnavailable):
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        network = AutoModelForSeq2SeqLM.from_pretrained(place, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    letters = {route: tokenizer(letter).input_ids[0] for letter, route in _LETTERS.items()}
    if len({*letters.values(), tokenizer.unk_token_id}) <= len(letters):
        raise InputError(f"'{name}' knows no letters A, B and C", "Name a T5 that was trained as Adaptive-RAG's is")
    return network.eval(), tokenizer, letters


@program
class AdaptiveRAG(RoutedProgram):
    """question ─► how complex? ─┬─ straightforward ─► the LM alone
    ├─ single-step ─► retrieve ─► answer
    └─ complex ─► IRCoT
    """

    name: ClassVar[str] = "adaptive_rag"
    reads = RETRIEVING | {"rerank_everywhere", "ircot", "adaptive"}

    def build(self, retriever: Retriever) -> None:
        """The classifier of questions, and a strategy for each route that retrieves."""
        self.complexity = build_complexity(self.options)
        self.single_step = EvidenceBased(retriever, self.reranker, self.options)
        self.complex = InterleavedReasoning(retriever, self.reranker, self.options)

    def route(self, question: str) -> Route:
        """The route that the classifier names; see `RoutedProgram.route`."""
        return Route(self.complexity(question=question).route)

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """See `RoutedProgram.by_route`."""
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        strategy = self.complex if route is Route.COMPLEX else self.single_step
        return strategy(question=question)
