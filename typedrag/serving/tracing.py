"""OpenTelemetry spans: of each request, made by FastAPI, and within it of the modules, LM calls and searches.

They are named by the conventions for generative AI where there is one, and go where OpenTelemetry's standard variables
say: to a collector, or to MLflow's server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import dspy
from dspy._vendor.lm15.transports import StdlibAsyncTransport, StdlibTransport, TransportRequest
from dspy.utils.callback import BaseCallback
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Span as RecordedSpan
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

import typedrag
from typedrag.core.errors import InputError
from typedrag.core.events import AnswerEnded, Event, StepEnded, listen
from typedrag.core.registry import NoDeepcopy
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.programs import Program
from typedrag.serving.monitoring import request_line
from typedrag.serving.programs import LoadedProgram
from typedrag.serving.responses import to_fault

_INPUT, _OUTPUT = "input.value", "output.value"  # OpenInference's names, which MLflow and others show
_QUERY = "url.query"
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Tracing:
    """Makes the spans of questions, and sends them and those of requests.

    Spans have the texts of questions, sub-queries and answers only with `log_questions`. The provider of the server's
    tracers is not the process's global one.

    Raises:
        InputError: If an exporter is asked for that is not installed.
    """

    def __init__(self, *, log_questions: bool) -> None:
        attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in attributes
        self.provider = TracerProvider(resource=Resource.create(None if named else {SERVICE_NAME: "typedrag"}))
        if not log_questions:
            self.provider.add_span_processor(_WithoutQueries())
        for exporter in open_exporters():
            self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("typedrag", typedrag.__version__)
        self._log_questions = log_questions
        for transport in (StdlibTransport, StdlibAsyncTransport):
            _send_traceparent(transport)

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Make spans of the modules, LM calls and searches within."""
        with ExitStack() as stack:
            spans = _ModuleSpans(self._tracer, with_texts=self._log_questions)
            stack.enter_context(dspy.context(callbacks=[*dspy.settings.callbacks, spans]))
            stack.enter_context(track_cost(CostTracker(listener=_add_spending)))
            stack.enter_context(listen(self._add_step, tokens=False))
            yield

    def _add_step(self, event: Event) -> None:
        """Make a span of a step that finds or orders passages, and note others that ask no LM in the module's span."""
        if not isinstance(event, StepEnded) or event.step.usage.lm_calls:
            return
        step, end = event.step, time.time_ns()
        texts = {"typedrag.part": event.part, _INPUT: step.input, _OUTPUT: step.output}
        attributes: dict[str, Any] = {name: text for name, text in texts.items() if text and self._log_questions}
        if not step.seconds:
            trace.get_current_span().add_event(step.name, attributes)
            return
        if step.passage_ids:
            attributes["typedrag.passages"] = len(step.passage_ids)
        if step.name == "retrieve":
            attributes["gen_ai.operation.name"] = "retrieval"
        # seconds are rounded, and those of kept replies are the time that they once took
        start = max(end - round(step.seconds * 1e9), getattr(trace.get_current_span(), "start_time", 0))
        self._tracer.start_span(step.name, start_time=start, attributes=attributes).end(end)

    def add_answer(self, loaded: LoadedProgram, event: AnswerEnded) -> None:
        """Describe an answer in the span of its request."""
        answer = event.answer
        texts = {_INPUT: answer.question, _OUTPUT: answer.answer} if self._log_questions else {}
        trace.get_current_span().set_attributes(
            {
                **texts,
                "typedrag.request_id": request_line().request_id,
                "typedrag.program": loaded.name,
                "typedrag.version": loaded.version,
                "typedrag.question_type": answer.question_type or "",
                "typedrag.route": answer.route,
                "typedrag.answered": answer.answered,
                "typedrag.fallback": bool(answer.fallback),
                "typedrag.lm_calls": answer.usage.lm_calls,
            }
        )

    def add_error(self, error: BaseException) -> None:
        trace.get_current_span().set_attribute("error.type", to_fault(error).code)

    def close(self) -> None:
        self.provider.shutdown()


def open_exporters() -> list[SpanExporter]:
    """The exporters that OpenTelemetry's variables name, of the packages that are installed."""
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    exporters = []
    for name in (os.environ.get(_EXPORTERS) or "otlp").split(","):
        entry = f"otlp_proto_{protocol.split('/')[0]}" if name.strip() == "otlp" else name.strip()
        entries = entry_points(group="opentelemetry_traces_exporter", name=entry)
        if not entries:
            package = f"opentelemetry-exporter-{entry.replace('_', '-')}"
            raise InputError(f"no exporter '{entry}' of OpenTelemetry is installed", f"pip install {package}")
        exporters.append(next(iter(entries)).load()())
    return exporters


class _ModuleSpans(NoDeepcopy, BaseCallback):
    """Opens a span for each module and LM call, as DSPy runs them."""

    def __init__(self, tracer: Tracer, *, with_texts: bool) -> None:
        self._tracer, self._with_texts = tracer, with_texts
        self._open: dict[str, tuple[Span, Any]] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, Program):
            about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": instance.name}
            self._start(call_id, f"invoke_agent {instance.name}", about, inputs)
        else:
            signature = getattr(instance, "signature", None)
            self._start(call_id, getattr(signature, "__name__", type(instance).__name__), {}, inputs)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        self._end(call_id, outputs, exception)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        provider, _, model = instance.model.partition("/")
        about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        for name in ("temperature", "top_p", "max_tokens"):
            if (value := instance.kwargs.get(name)) is not None:
                about[f"gen_ai.request.{name}"] = value
        self._start(call_id, f"chat {model}", about, inputs, SpanKind.CLIENT)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        self._end(call_id, outputs, exception)

    def _start(
        self, call_id: str, name: str, about: dict[str, Any], inputs: Any, kind: SpanKind = SpanKind.INTERNAL
    ) -> None:
        span = self._tracer.start_span(name, kind=kind, attributes=about)
        if self._with_texts:
            span.set_attribute(_INPUT, str(inputs))
        self._open[call_id] = span, context.attach(trace.set_span_in_context(span))

    def _end(self, call_id: str, outputs: Any, exception: BaseException | None) -> None:
        span, token = self._open.pop(call_id)
        context.detach(token)
        if exception is not None:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", type(exception).__name__)
        elif self._with_texts:
            span.set_attribute(_OUTPUT, str(outputs))
        span.end()


class _WithoutQueries(SpanProcessor):
    """Removes the query strings of requests from spans."""

    def on_start(self, span: RecordedSpan, parent_context: context.Context | None = None) -> None:
        if _QUERY in (span.attributes or {}):
            span.set_attribute(_QUERY, "REDACTED")


def _add_spending(spending: Spending) -> None:
    """Note the tokens of an LM call in its span, which alone has them: sums over spans are right then."""
    usage = spending.usage
    tokens = {"gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": usage.completion_tokens}
    trace.get_current_span().set_attributes(tokens)


def _send_traceparent(transport: Any) -> None:
    """Let the requests of DSPy's client carry the current span to the LM's server."""
    stream: Callable[[Any, TransportRequest], Any] = transport.stream
    if hasattr(stream, "sends_traceparent"):
        return

    def with_traceparent(self: Any, request: TransportRequest) -> Any:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        return stream(self, replace(request, headers=[*request.headers, *headers.items()]))

    with_traceparent.sends_traceparent = True  # type: ignore[attr-defined]
    transport.stream = with_traceparent
