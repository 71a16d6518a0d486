"""HANRAG's baselines (section 5): IRCoT, in which retrieval and reasoning take turns (Trivedi et al. 2023), and
Adaptive-RAG, which retrieves not at all, once, or again and again (Jeong et al. 2024).

Classifiers of complexity are modules that take a `question` and return a `dspy.Prediction` with `route`.
"""

from pathlib import Path
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, LMUnavailable, StepFailed
from typedrag.core.question_types import Route
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import Stopwatch, add_step, calls_left, record_fallback
from typedrag.programs.answering import Retrieving
from typedrag.programs.options import COMPLEXITY_CLASSIFIERS, Options
from typedrag.programs.program import RETRIEVING, RoutedProgram, StrategyProgram, program
from typedrag.programs.typed_rag.strategies import EvidenceBased
from typedrag.retrieval import Reranker, Retriever
from typedrag.retrieval.local_models import loading, local_model
from typedrag.signatures import AnswerFromPassages
from typedrag.signatures.fields import number_passages
from typedrag.signatures.hanrag import JudgeComplexity, ReasonOneStep


class InterleavedReasoning(Retrieving):
    """┌► retrieve ─► one sentence of reasoning ─► finished? ─┬─ yes ─► answer from all that was collected
    └─ the sentence is the next query ◄─── no ──────────────┘
    """

    answers_by = AnswerFromPassages
    may_be_phrase = True

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        most = options.ircot.max_passages
        super().__init__(retriever, reranker, options.model_copy(update={"answer_passages": most}))

    def build(self) -> None:
        self.reason = dspy.Predict(ReasonOneStep)

    def forward(self, question: str) -> dspy.Prediction:
        collected: dict[str, Passage] = {}
        thoughts: list[str] = []
        query = question
        while True:
            [passages] = self.search([query], rerank=True)
            for passage in self.rerank(query, passages, self.options.top_k):
                if len(collected) < self.options.ircot.max_passages:
                    collected.setdefault(passage.id, passage)
            read = {
                "passages": number_passages(list(collected.values()), self.options.passage_words),
                "question": question,
                "thoughts": list(thoughts),
            }
            try:
                reply = ask("reason", self.reason, retries=self.options.retries, **read)
            except StepFailed as failure:
                record_fallback(failure, "answered from what was found by then")
                break
            query = " ".join(reply.prediction.thought.split())
            add_step(Step("reason", question, query, seconds=reply.seconds, usage=reply.usage))
            if reply.prediction.finished or not query or query in thoughts:
                break
            if len(thoughts) + 1 == self.options.ircot.max_steps or calls_left(default=2) < 2:  # one is for the answer
                break
            thoughts.append(query)
        return self.final_answer(self.answer, question, list(collected.values()))


@program
class IRCoT(StrategyProgram):
    """question ─► (retrieve ─► one sentence of reasoning) again and again ─► answer"""

    name: ClassVar[str] = "ircot"
    reads = (RETRIEVING - {"answer_passages"}) | {"ircot"}
    strategy_class = InterleavedReasoning


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
        reply = ask("classify", self.judge, retries=self._retries, question=question)
        route = Route(reply.prediction.route)
        add_step(Step("classify", question, str(route), seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(route=route)


class TrainedComplexity(dspy.Module):
    """A T5 that was trained to write A, B or C for a question, as the authors' code trains it.

    Of the three the most probable is taken, whatever else it would write. The name is a folder's, or on the Hugging
    Face hub; it is loaded at the first question.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, question: str) -> dspy.Prediction:
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
        model = COMPLEXITY_CLASSIFIERS.parse(self.options.adaptive.classifier).argument
        self.complexity = TrainedComplexity(model) if model else LMComplexity(self.options)
        self.single_step = EvidenceBased(retriever, self.reranker, self.options)
        self.complex = InterleavedReasoning(retriever, self.reranker, self.options)

    def route(self, question: str) -> Route:
        return Route(self.complexity(question=question).route)

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        strategy = self.complex if route is Route.COMPLEX else self.single_step
        return strategy(question=question)
