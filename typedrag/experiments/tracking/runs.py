"""Log runs of evaluations to MLflow: their settings, results and traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.evaluate.results import QuestionResult, Run, Tally
from typedrag.experiments.evaluate.summary import GroupSummary, RunSummary
from typedrag.experiments.tracking.tracked_run import PARENT, TrackedRun, table_of
from typedrag.redaction import Redactor

NOTE = "mlflow run"
QUESTIONS = "questions.json"
TRACES = "traces.jsonl"


class Tracker:
    """Logs a run of an evaluation to MLflow, unless tracking is off; see `TrackedRun`.

    `parent` is the id of the run that this one is nested in; empty if it is not nested.

    Raises:
        TypedRAGError: By `begin`, if the store cannot be used.
    """

    def __init__(
        self,
        config: TrackingConfig,
        redact: Redactor,
        on_notice: Callable[[str], None],
        *,
        parent: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._run = TrackedRun(config, redact, on_notice)
        self._tags = {**(tags or {}), PARENT: parent}
        self._traces = config.tracing
        self._tracing = ExitStack()

    def begin(self, run: Run, note: Callable[[str, str], None]) -> None:
        """Begin MLflow's run, or continue the one that the run's note names; `note` makes that note."""
        settings = {name: value for name, value in run.settings.items() if name != NOTE}
        if self._run.begin(run.name, settings, run.settings.get(NOTE), partial(note, NOTE), tags=self._tags) is None:
            return
        import mlflow

        if mlflow.active_run():  # left by a run that a fault ended
            mlflow.end_run()
        mlflow.start_run(run_id=self._run.id)  # traces belong to the active run
        if self._traces:
            self._tracing.enter_context(_tracing(self._run.redact))

    def tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        if self._run.id:
            with self._run.telling(f"that the run is {value}"):
                self._run.tag({name: value})

    @contextmanager
    def span(self, name: str, question: str) -> Iterator[None]:
        """Gather the calls within the context in a trace of their own."""
        if not (self._run.id and self._traces):
            yield
            return
        import mlflow

        fault: BaseException | None = None
        with mlflow.start_span(name, attributes={"question": question}) as span:
            if mlflow.get_current_active_span():  # MLflow samples traces, and may leave this one out
                mlflow.update_current_trace(tags={"question": question, "step": name})
            try:
                yield
            except BaseException as error:  # MLflow would keep its message, which may hold a key
                fault = error
                span.set_status("ERROR")
        if fault is not None:
            raise fault

    def end(self, run: Run, summary: RunSummary, stopped: str) -> None:
        """Log the results of the run; `stopped` is empty if it is finished."""
        if not self._run.id:
            return
        import mlflow

        with self._run.telling(f"of run '{run.name}'", ". Nothing is lost: tell it with --resume"):
            self._tracing.close()
            self._run.log(_metrics_of(summary))
            with self._run.artifacts(QUESTIONS) as folder:
                _write_artifacts(run, summary, folder)
            mlflow.end_run("KILLED" if stopped else "FINISHED")


@contextmanager
def _tracing(redact: Callable[[str], str]) -> Iterator[None]:
    """Record each call of a module or an LM within the context as a span."""
    import dspy
    import mlflow
    from dspy.dsp.utils.settings import main_thread_config
    from mlflow.dspy.callback import MlflowCallback

    class Callback(MlflowCallback):
        """MLflow's callback, with redacted messages of errors."""

        def on_lm_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_lm_end(call_id, outputs, _without_secrets(exception, redact))

        def on_module_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_module_end(call_id, outputs, _without_secrets(exception, redact))

        # an adapter's spans would repeat those of its module and its LM: half of all spans
        on_adapter_format_start = on_adapter_parse_start = _ignore
        on_adapter_format_end = on_adapter_parse_end = _ignore

    def hide(span: Any) -> None:
        for name, value in span.attributes.items():
            text = json.dumps(value, default=str)
            if (hidden := redact(text)) != text:
                span.set_attribute(name, json.loads(hidden))

    before = {name: main_thread_config[name] for name in ("callbacks", "track_usage")}
    callbacks = [*dspy.settings.callbacks, Callback()]
    with mlflow.tracing.configure(span_processors=[hide]), dspy.context(callbacks=callbacks):
        mlflow.dspy.autolog()  # it adds no callback if one of its kind is there
        try:
            yield
        finally:
            mlflow.dspy.autolog(disable=True)
            dspy.configure(**before)  # MLflow has made this context's callbacks the process's
            mlflow.flush_trace_async_logging()


def _ignore(self: Any, *_: object, **__: object) -> None:
    pass


def _without_secrets(exception: Exception | None, redact: Callable[[str], str]) -> Exception | None:
    return exception and RuntimeError(f"{type(exception).__name__}: {redact(str(exception))}")


def _metrics_of(summary: RunSummary) -> dict[str, float]:
    """The metrics of a run, such as `linkage/mrr` overall and `linkage/mrr/reason` by type."""
    values = dict(_group_metrics(summary.overall, ""))
    for name, group in summary.types.items():
        values |= dict(_group_metrics(group, f"/{name}"))
    return values | summary.spent.metrics


def _group_metrics(group: GroupSummary, suffix: str) -> Iterator[tuple[str, float]]:
    yield from ((f"answers/{f.name}{suffix}", float(getattr(group, f.name))) for f in fields(Tally))
    yield from ((f"cost/{name}{suffix}", mean) for name, mean in group.cost.items())
    for name, metric in group.metrics.items():
        counts = {"n": metric.n, "failed": metric.failed, "not_measurable": metric.not_measurable}
        for measure, value in {**metric.measures, **counts}.items():
            yield f"{name}/{measure}{suffix}", float(value)


def _write_artifacts(run: Run, summary: RunSummary, folder: Path) -> None:
    answers = [{"id": q.id, **q.answer.to_dict()} for q in run.questions if q.answer]
    traces = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    (folder / QUESTIONS).write_text(table_of([_row(q) for q in run.questions]), "utf-8")
    (folder / TRACES).write_text(traces, "utf-8")
    (folder / "results.json").write_text(json.dumps(summary.to_dict(), ensure_ascii=False, indent=1), "utf-8")


def _row(question: QuestionResult) -> dict[str, Any]:
    answer = question.answer
    row: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "question_type": str(question.question_type or ""),
        "subset": question.subset,
        "answer": answer.answer if answer else None,
        "error": question.error,
        "fallback": answer.fallback if answer else "",
        "answered": str(answer.answered) if answer else "",
        "grounded": answer.grounded if answer else None,
        "lm_calls": answer.usage.lm_calls if answer else None,
        "seconds": answer.seconds if answer else None,
    }
    for name, result in question.metrics.items():
        row |= {f"{name}/{measure}": value for measure, value in result.measures.items()}
        row |= {f"{name}/score": result.score, f"{name}/feedback": result.feedback, f"{name}/problem": result.problem}
    return row
