"""The metrics of a server in Prometheus' format."""

from __future__ import annotations

import asyncio
import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from typedrag.core.events import AnswerEnded, Event, StepEnded
from typedrag.core.records import Answered
from typedrag.lms.cost import Spending
from typedrag.serving.errors import Fault, to_fault
from typedrag.serving.programs import LoadedProgram

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which processes share their metrics."""
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_MOST_VALUES = 100
_OTHER = "other"


class Metrics:
    """Counts requests, questions and steps. Labels are words of the program and of this code, never of clients."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        if not _shared():
            ProcessCollector(registry=self._registry)
        self._steps = _Bounded()
        self._routes = _Bounded()
        self._requests = self._counter("requests", "Requests, by the path of their route.", "path", "status")
        self._request_seconds = self._histogram("request_seconds", "From a request to the end of its reply.", "path")
        self._questions = self._counter("questions", "Questions, by how they ended.", "program", "outcome")
        self._question_seconds = self._histogram(
            "question_seconds", "From a question's first step to its answer.", "program", "type", "route"
        )
        self._answer_seconds = self._histogram("answer_seconds", "From a question to its answer, the wait included.")
        self._step_seconds = self._histogram("step_seconds", "Of a step, those below it included.", "step")
        self._fallbacks = self._counter("fallbacks", "Answers that a step failed for.", "program")
        self._refused = self._counter("refused", "Requests that ended in an error.", "status", "code")
        self._calls = self._counter("lm_calls", "LM calls.", "program")
        self._tokens = self._counter("lm_tokens", "Tokens that LMs read and wrote.", "program", "direction")
        self._dollars = self._counter("lm_dollars", "Price of the LM calls whose price is known.", "program")
        self._unpriced = self._counter("lm_calls_unpriced", "LM calls whose price is not known.", "program")
        self._reloads = self._counter("reloads", "Programs that were to be opened anew.", "program", "outcome")
        self.running = self._gauge("running", "Questions that are being answered.")
        self.waiting = self._gauge("waiting", "Questions that wait for their turn.")
        self.breaker_open = self._gauge("breaker_open", "Processes that have found the LM or the index out of order.")

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics of all processes that share them, and their content type.

        Args:
            accept: The `Accept` header, which chooses among Prometheus' formats.
        """
        registry = self._registry
        if _shared():
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, status).inc()
        self._request_seconds.labels(path).observe(seconds)

    def count_event(self, loaded: LoadedProgram, event: Event) -> None:
        """Count a step, or an answer."""
        if isinstance(event, StepEnded):
            self._step_seconds.labels(self._steps.value(event.step.name)).observe(event.step.seconds)
        elif isinstance(event, AnswerEnded):
            answer = event.answer
            route = self._routes.value(answer.route)
            self._question_seconds.labels(loaded.name, answer.question_type or "", route).observe(answer.seconds)
            self._fallbacks.labels(loaded.name).inc(bool(answer.fallback))
            outcome = "not_answered" if answer.answered == Answered.NOTHING else "answered"
            self._questions.labels(loaded.name, outcome).inc()

    def count_end(self, loaded: LoadedProgram, error: BaseException | None) -> None:
        """Count a question that has no answer."""
        if error is not None:
            outcome = "left" if isinstance(error, asyncio.CancelledError) else to_fault(error).code
            self._questions.labels(loaded.name, outcome).inc()

    def count_spending(self, loaded: LoadedProgram, spending: Spending) -> None:
        """Count LM calls, tokens and money."""
        self._calls.labels(loaded.name).inc(spending.usage.lm_calls)
        self._tokens.labels(loaded.name, "read").inc(spending.usage.prompt_tokens)
        self._tokens.labels(loaded.name, "written").inc(spending.usage.completion_tokens)
        self._dollars.labels(loaded.name).inc(spending.dollars)
        self._unpriced.labels(loaded.name).inc(spending.unpriced)

    def count_reply(self, seconds: float) -> None:
        """Count the time that an answer took."""
        self._answer_seconds.observe(seconds)

    def count_refusal(self, fault: Fault) -> None:
        """Count an error."""
        self._refused.labels(fault.status, fault.code).inc()

    def count_reload(self, program: str, outcome: str) -> None:
        """Count a reload."""
        self._reloads.labels(program, outcome).inc()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"typedrag_{name}", about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str, *labels: str) -> Histogram:
        return Histogram(f"typedrag_{name}", about, labels, buckets=_SECONDS, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"typedrag_{name}", about, registry=self._registry, multiprocess_mode="livesum")


class _Bounded:
    """Limits the number of a label's values: programs of other packages may name their steps freely."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def value(self, value: str) -> str:
        if len(self._seen) < _MOST_VALUES:
            self._seen.add(value)
        return value if value in self._seen else _OTHER


def _shared() -> bool:
    return bool(os.environ.get(SHARED))
