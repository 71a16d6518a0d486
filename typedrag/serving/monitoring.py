"""The metrics of a server in Prometheus' format, and its log: a line of JSON for each request."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from typedrag.core.call_context import call_context
from typedrag.core.events import AnswerEnded, Event, StepEnded
from typedrag.core.records import Answer, Answered
from typedrag.core.redaction import without_keys
from typedrag.lms.cost import CostTracker, Spending

if TYPE_CHECKING:
    from typedrag.serving.keys import Key
    from typedrag.serving.programs import LoadedProgram
    from typedrag.serving.responses import Fault


SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the variable with the folder in which processes share their metrics
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_REFUSALS = ((429, "busy"), (429, "rate_limited"), (503, "unavailable"), (503, "lm_unavailable"), (504, "deadline"))
_MOST_VALUES = 100
_OTHER = "other"


class Metrics:
    """Counts requests, questions and steps. Labels are words of the program and of this code, never of clients.

    What alerts are about is there from the beginning, as 0, for the programs of these names: Prometheus sees an
    increase only between two values.
    """

    def __init__(self, programs: Iterable[str] = ()) -> None:
        self._registry = registry = CollectorRegistry()
        if not os.environ.get(SHARED):
            ProcessCollector(registry=registry)
        counter = partial(Counter, namespace="typedrag", registry=registry)
        histogram = partial(Histogram, namespace="typedrag", buckets=_SECONDS, registry=registry)
        gauge = partial(Gauge, namespace="typedrag", multiprocess_mode="livesum", registry=registry)
        self._steps: set[str] = set()
        self._routes: set[str] = set()
        self._requests = counter("requests", "Requests, by the path of their route.", ["path", "status"])
        self._request_seconds = histogram("request_seconds", "From a request to the end of its reply.", ["path"])
        self.questions = counter("questions", "Questions, by how they ended.", ["program", "outcome"])
        self._question_seconds = histogram(
            "question_seconds", "From a question's first step to its answer.", ["program", "type", "route"]
        )
        self.answer_seconds = histogram(
            "answer_seconds", "From a question to its answer or its deadline, the wait included."
        )
        self._step_seconds = histogram("step_seconds", "Of a step, those below it included.", ["step"])
        self._fallbacks = counter("fallbacks", "Answers that a step failed for.", ["program"])
        self._refused = counter("refused", "Requests that ended in an error.", ["status", "code"])
        self._calls = counter("lm_calls", "LM calls.", ["program"])
        self._tokens = counter("lm_tokens", "Tokens that LMs read and wrote.", ["program", "direction"])
        self._dollars = counter("lm_dollars", "Price of the LM calls whose price is known.", ["program"])
        self._unpriced = counter("lm_calls_unpriced", "LM calls whose price is not known.", ["program"])
        self.reloads = counter("reloads", "Attempts to reload a program.", ["program", "outcome"])
        self.running = gauge("running", "Questions that are being answered, and searches.")
        self.waiting = gauge("waiting", "Questions and searches that wait for their turn.")
        self.breaker_open = gauge("breaker_open", "Processes that have found the LM or the index out of order.")
        for status, code in _REFUSALS:
            self._refused.labels(status, code)
        for name in programs:
            self._fallbacks.labels(name)
            for outcome in ("answered", "not_answered"):
                self.questions.labels(name, outcome)
            for outcome in ("swapped", "refused", "unavailable"):
                self.reloads.labels(name, outcome)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics of all processes that share them, and their content type, as the `Accept` header wants it."""
        registry = self._registry
        if os.environ.get(SHARED):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def count_request(self, path: str, status: int, seconds: float, fault: Fault | None) -> None:
        self._requests.labels(path, status).inc()
        self._request_seconds.labels(path).observe(seconds)
        if fault is not None:
            self._refused.labels(fault.status, fault.code).inc()

    def count_event(self, loaded: LoadedProgram, event: Event) -> None:
        if isinstance(event, StepEnded):
            self._step_seconds.labels(_bound(self._steps, event.step.name)).observe(event.step.seconds)
        elif isinstance(event, AnswerEnded):
            answer = event.answer
            route = _bound(self._routes, answer.route)
            self._question_seconds.labels(loaded.name, answer.question_type or "", route).observe(answer.seconds)
            self._fallbacks.labels(loaded.name).inc(bool(answer.fallback))
            outcome = "not_answered" if answer.answered == Answered.NOTHING else "answered"
            self.questions.labels(loaded.name, outcome).inc()

    def count_spending(self, loaded: LoadedProgram, spending: Spending) -> None:
        self._calls.labels(loaded.name).inc(spending.usage.lm_calls)
        self._tokens.labels(loaded.name, "read").inc(spending.usage.prompt_tokens)
        self._tokens.labels(loaded.name, "written").inc(spending.usage.completion_tokens)
        self._dollars.labels(loaded.name).inc(spending.dollars)
        self._unpriced.labels(loaded.name).inc(spending.unpriced)


def _bound(values: set[str], value: str) -> str:
    """Limit the number of a label's values: programs of other packages may name their steps freely."""
    if len(values) < _MOST_VALUES:
        values.add(value)
    return value if value in values else _OTHER


logger = logging.getLogger("typedrag.requests")


@dataclass
class RequestLine:
    """The log's line of a request; a batch has one line.

    The `path` is the template of the route; empty if it has none, since the path itself is a stranger's text. The
    `status` is 0 if there was no reply, and 200 for a stream that ends in a `fault`. `seconds` pass from the head of
    the request to the end of its reply. Spent is what its questions cost, unless others had asked the same at that
    moment.
    """

    request_id: str = ""
    client_request_id: str = ""
    method: str = ""
    path: str = ""
    status: int = 0
    seconds: float = 0.0
    address: str = ""
    key: Key | None = None
    program: str = ""
    types: list[str] = field(default_factory=list)
    fallback: bool = False
    fault: Fault | None = None
    questions: list[str] = field(default_factory=list)
    accounts: list[CostTracker] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Those that the reply gets."""

    @property
    def client(self) -> str:
        """The one whose limits count."""
        return self.key.name if self.key else self.address

    def add_answer(self, answer: Answer) -> None:
        self.types.extend(kind for kind in (answer.question_type,) if kind and kind not in self.types)
        self.fallback = self.fallback or bool(answer.fallback)

    def write(self, *, with_questions: bool) -> None:
        spent = sum((account.spent for account in self.accounts), Spending())
        values = dict(vars(self))
        for name in ("accounts", "headers", "fault", *(() if with_questions else ("questions",))):
            del values[name]
        values |= {"seconds": round(self.seconds, 4), "key": self.key.name if self.key else ""}
        values |= {"type": ",".join(values.pop("types"))}
        values |= {"lm_calls": spent.usage.lm_calls, "tokens": spent.tokens, "dollars": spent.cost}
        values |= {"error": self.fault.code if self.fault else ""}
        failed = max(self.status, self.fault.status if self.fault else 0) >= 500
        logger.log(logging.WARNING if failed else logging.INFO, "request", extra={"values": values})


def request_line() -> RequestLine:
    """The line of the current request; outside a request, one that is never written."""
    return call_context().request or RequestLine()


class JSONLines(logging.Formatter):
    """Lines of JSON without keys."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return without_keys(json.dumps(values))  # JSON escapes line ends and control characters


def log_json() -> None:
    """Log to stderr in lines of JSON, requests among them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    logging.getLogger().handlers = [handler]
    logger.setLevel(logging.INFO)
