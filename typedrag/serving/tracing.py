"""OpenTelemetry spans: one for each request, made by FastAPI, and within it one for each step.

They go to the endpoint of OpenTelemetry's standard variables: a collector, or MLflow's server.
"""

import os
import time

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import typedrag
from typedrag.core.events import AnswerEnded, Event, StepEnded
from typedrag.core.records import Usage
from typedrag.serving.monitoring import request_line
from typedrag.serving.programs import LoadedProgram
from typedrag.serving.responses import to_fault

_INPUT, _OUTPUT = "input.value", "output.value"  # OpenInference's names, which MLflow and others show
_QUERY = "url.query"


class Tracing:
    """Makes spans of steps, and sends them and those of requests.

    Spans have the texts of questions, sub-queries and answers only with `log_questions`. The provider of the server's
    tracers is not the process's global one.
    """

    def __init__(self, *, log_questions: bool) -> None:
        attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in attributes
        self.provider = TracerProvider(resource=Resource.create(None if named else {SERVICE_NAME: "typedrag"}))
        if not log_questions:
            self.provider.add_span_processor(_WithoutQueries())
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self.provider.get_tracer("typedrag", typedrag.__version__)
        self._log_questions = log_questions

    def add_event(self, loaded: LoadedProgram, event: Event) -> None:
        if (request := _request_span()) is None:
            return
        if isinstance(event, StepEnded):
            step, end = event.step, time.time_ns()
            # a step with cached replies counts the time that they once took
            start = max(end - round(step.seconds * 1e9), request.start_time or 0)
            texts = {"typedrag.part": event.part, _INPUT: step.input, _OUTPUT: step.output}
            shown = {name: text for name, text in texts.items() if text and self._log_questions}
            passages = {"typedrag.passages": len(step.passage_ids)} if step.passage_ids else {}
            attributes: dict[str, str | int] = {**shown, **passages, **_spent(step.usage)}
            self._tracer.start_span(step.name, start_time=start, attributes=attributes).end(end)
        elif isinstance(event, AnswerEnded):
            answer = event.answer
            texts = {_INPUT: answer.question, _OUTPUT: answer.answer} if self._log_questions else {}
            request.set_attributes(
                {
                    **texts,
                    "typedrag.request_id": request_line().request_id,
                    "typedrag.program": loaded.name,
                    "typedrag.version": loaded.version,
                    "typedrag.question_type": answer.question_type or "",
                    "typedrag.route": answer.route,
                    "typedrag.answered": answer.answered,
                    "typedrag.fallback": bool(answer.fallback),
                    **_spent(answer.usage),
                }
            )

    def add_error(self, error: BaseException) -> None:
        if (request := _request_span()) is not None:
            request.set_attribute("typedrag.error", to_fault(error).code)

    def close(self) -> None:
        self.provider.shutdown()


class _WithoutQueries(SpanProcessor):
    """Removes the query strings of requests from spans."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if _QUERY in (span.attributes or {}):
            span.set_attribute(_QUERY, "REDACTED")


def _request_span() -> Span | None:
    span = trace.get_current_span()
    return span if isinstance(span, Span) and span.is_recording() else None


def _spent(usage: Usage) -> dict[str, int]:
    """The usage as attributes, named by OpenTelemetry's conventions where there is one."""
    if not usage.lm_calls:
        return {}
    return {
        "typedrag.lm_calls": usage.lm_calls,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }
