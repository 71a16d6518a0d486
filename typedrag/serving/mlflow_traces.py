"""A share of the answers as MLflow traces: question, answer and the tree of steps."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from mlflow.entities import SpanType

from typedrag.errors import first_line
from typedrag.events import AnswerEnded, Event, StepEnded
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store
from typedrag.records import Answer, Step
from typedrag.redaction import without_keys
from typedrag.serving.logs import request_line
from typedrag.serving.observer import Observer
from typedrag.serving.served import Served

logger = logging.getLogger(__name__)

EXPERIMENT = "typedrag-serving"
REQUEST_ID = "typedrag.request_id"
"""The tag that traces are found by."""
_MOST_WAITING = 1000
_TYPES = {"retrieve": SpanType.RETRIEVER, "rerank": SpanType.RERANKER, "answer": SpanType.LLM}

_ended_at: ContextVar[dict[Step, int] | None] = ContextVar("ended_at", default=None)


class MLflowTraces(Observer):
    """Writes a share of the answers as traces, in its own thread; if that fails, questions are answered all the same.

    Args:
        share: The share, from 0 to 1.

    Raises:
        Unavailable: If MLflow's store cannot be used.
    """

    def __init__(self, share: float) -> None:
        # with OpenTelemetry's variables, MLflow would send traces there instead of to its store, and metrics as well;
        # exporters made before this line keep their settings
        os.environ["MLFLOW_ENABLE_OTLP_EXPORTER"] = "false"
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
            os.environ.pop(name, None)
        with faults_of_store(without_keys, "Set MLFLOW_TRACKING_URI to another, or --limit traces=0"):
            self._mlflow = connect(TrackingConfig(experiment=EXPERIMENT))
            self._experiment = self._mlflow.get_experiment_by_name(EXPERIMENT).experiment_id
        self._share = share
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="typedrag-traces")

    def happened(self, served: Served, event: Event) -> None:
        """Note when a step ended, and write the answer if it falls into the share."""
        now = time.time_ns()
        if isinstance(event, StepEnded):
            if (ended := _ended_at.get()) is None:
                _ended_at.set(ended := {})
            ended[event.step] = now
        elif isinstance(event, AnswerEnded) and random.random() < self._share:
            if not self._waiting.acquire(blocking=False):
                logger.warning("a trace is left out: MLflow's store is too slow for so many")
                return
            tags = {
                REQUEST_ID: request_line().id,
                "typedrag.program": served.name,
                "typedrag.version": served.version,
            }
            self._writer.submit(self._write, event.answer, tags, _ended_at.get() or {}, now)

    def close(self) -> None:
        """Write the remaining traces."""
        self._writer.shutdown()
        self._mlflow.flush_trace_async_logging()

    def _write(self, answer: Answer, tags: Mapping[str, str], ended_at: Mapping[Step, int], now: int) -> None:
        try:
            root = self._span(
                answer.program, SpanType.CHAIN, answer.seconds, now, {"question": answer.question}, tags=tags
            )
            for step in answer.steps:
                self._write_step(step, root, ended_at, now)
            root.end(outputs=answer.to_dict(), end_time_ns=now)
        except Exception as error:  # of MLflow, SQLAlchemy, requests, ...
            logger.warning("a trace is not written: %s", first_line(error))
        finally:
            self._waiting.release()

    def _write_step(self, step: Step, parent: Any, ended_at: Mapping[Step, int], latest: int) -> None:
        end = ended_at.get(replace(step, steps=()), latest)
        kind = _TYPES.get(step.name, SpanType.CHAIN)
        span = self._span(step.name, kind, step.seconds, end, {"input": step.input}, parent_span=parent)
        for inner in step.steps:
            self._write_step(inner, span, ended_at, end)
        span.end(outputs={"output": step.output, "passage_ids": step.passage_ids}, end_time_ns=end)

    def _span(self, name: str, kind: str, seconds: float, end: int, inputs: dict[str, str], **more: Any) -> Any:
        return self._mlflow.start_span_no_context(
            name, kind, inputs=inputs, start_time_ns=end - round(seconds * 1e9), **more
        )
