"""OpenTelemetry spans: one for each request, made by FastAPI, and within it one for each step."""

from __future__ import annotations

import os
import time

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import typedrag
from typedrag.events import AnswerEnded, Event, StepEnded
from typedrag.records import Usage
from typedrag.serving.faults import fault_of
from typedrag.serving.observer import Observer
from typedrag.serving.served import Served

_QUERY = "url.query"


class Spans(Observer):
    """Makes spans, and sends them to the endpoint of OpenTelemetry's standard variables.

    Args:
        log_questions: Whether spans have the texts of questions, sub-queries and answers.

    Attributes:
        provider: The provider of the server's tracers, which is not the process's global one.
    """

    def __init__(self, *, log_questions: bool) -> None:
        named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        self.provider = TracerProvider(resource=Resource.create(None if named else {SERVICE_NAME: "typedrag"}))
        if not log_questions:
            self.provider.add_span_processor(_WithoutQueries())
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self.provider.get_tracer("typedrag", typedrag.__version__)
        self._log_questions = log_questions

    def happened(self, served: Served, event: Event) -> None:
        """Make a span of a step; add an answer's attributes to the span of the request."""
        request = trace.get_current_span()
        if not (isinstance(request, Span) and request.is_recording()):
            return
        if isinstance(event, StepEnded):
            step, end = event.step, time.time_ns()
            # a step with cached replies counts the time that they once took
            start = max(end - round(step.seconds * 1e9), request.start_time or 0)
            texts = {"part": event.part, "input": step.input, "output": step.output} if self._log_questions else {}
            about = {f"typedrag.{name}": text for name, text in texts.items() if text}
            passages = {"typedrag.passages": len(step.passage_ids)} if step.passage_ids else {}
            span = self._tracer.start_span(
                step.name, start_time=start, attributes={**about, **passages, **_spent(step.usage)}
            )
            span.end(end)
        elif isinstance(event, AnswerEnded):
            answer = event.answer
            request.set_attributes(
                {
                    "typedrag.program": served.name,
                    "typedrag.version": served.version,
                    "typedrag.question_type": answer.question_type or "",
                    "typedrag.route": answer.route,
                    "typedrag.answered": answer.answered,
                    "typedrag.fallback": bool(answer.fallback),
                    **_spent(answer.usage),
                }
            )

    def ended(self, served: Served, error: BaseException | None) -> None:
        """Add the error to the span of the request."""
        request = trace.get_current_span()
        if isinstance(error, Exception) and request.is_recording():
            request.set_attribute("typedrag.error", fault_of(error).code)

    def close(self) -> None:
        """Send the remaining spans."""
        self.provider.shutdown()


class _WithoutQueries(SpanProcessor):
    """Removes the query strings of requests from spans."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if _QUERY in (span.attributes or {}):
            span.set_attribute(_QUERY, "REDACTED")


def _spent(usage: Usage) -> dict[str, int]:
    """The usage as attributes, named by OpenTelemetry's conventions where there is one."""
    if not usage.lm_calls:
        return {}
    return {
        "typedrag.lm_calls": usage.lm_calls,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }
