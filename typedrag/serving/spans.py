"""OpenTelemetry's spans: one a request, which FastAPI makes, and within it one a step."""

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
    """Makes spans, and sends them to where OpenTelemetry's standard variables say.

    Args:
        log_questions: Whether spans hold the text of questions, sub-queries and answers.

    Attributes:
        provider: Of the tracers; that of the server alone, and not the process's.
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
        """Make a span of a step, and say of the request what is known of the answer."""
        request = trace.get_current_span()
        if not (isinstance(request, Span) and request.is_recording()):
            return
        if isinstance(event, StepEnded):
            step, end = event.step, time.time_ns()
            # a step whose replies were kept counts the time that they once took
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
        """Say of the request why it has no answer."""
        request = trace.get_current_span()
        if isinstance(error, Exception) and request.is_recording():
            request.set_attribute("typedrag.error", fault_of(error).code)

    def close(self) -> None:
        """Send what is not sent yet."""
        self.provider.shutdown()


class _WithoutQueries(SpanProcessor):
    """Takes out what clients write behind the path of a request."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if _QUERY in (span.attributes or {}):
            span.set_attribute(_QUERY, "REDACTED")


def _spent(usage: Usage) -> dict[str, int]:
    """By the names of OpenTelemetry's conventions where they have one."""
    if not usage.lm_calls:
        return {}
    return {
        "typedrag.lm_calls": usage.lm_calls,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }
