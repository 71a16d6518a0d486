"""Telling MLflow of the runs: what they were made with, what came of them, and how."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from typedrag.errors import first_line
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.evaluate.results import QuestionResult, Run, Tally
from typedrag.experiments.evaluate.run_store import RunStore
from typedrag.experiments.evaluate.summary import GroupSummary, RunSummary
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store, find_run, flat, parts
from typedrag.redaction import Redactor

NOTE = "mlflow run"
QUESTIONS = "questions.json"
TRACES = "traces.jsonl"


class Tracker:
    """Tells MLflow of one run, or nothing if that is switched off.

    Args:
        config: Where and what.
        redact: Hides keys and addresses.
        on_notice: Told of what could not be tracked. Once a run is made, that is no reason to fail.
        parent: The id of the run that this one is nested in; empty if in none.
        tags: Of the run.

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
        self._parent, self._tags = parent, dict(tags or {})
        self._config = config
        self._redact = redact
        self._notify = on_notice
        self._tracing = ExitStack()
        self._run_id = ""

    def begin(self, store: RunStore) -> None:
        """Begin MLflow's run, or continue the one that the store was tracked by before."""
        if not self._config.enabled:
            return
        run = store.read()
        with faults_of_store(self._redact, "Name another --tracking-uri, or go without: --no-tracking"):
            mlflow = connect(self._config)
            known = find_run(run.settings.get(NOTE))
            if mlflow.active_run():  # left by a run that a fault ended
                mlflow.end_run()
            if known:
                began = mlflow.start_run(run_id=known.info.run_id)
            else:
                began = mlflow.start_run(run_name=run.name, parent_run_id=self._parent or None)
            self._run_id = began.info.run_id
            store.note(NOTE, self._run_id)
            mlflow.set_tags(self._tags)
            parameters = dict(flat({n: v for n, v in run.settings.items() if n != NOTE}))
            told = began.data.params
            for part in parts({n: v for n, v in parameters.items() if n not in told}):
                mlflow.log_params(part)
            if commit := run.settings.get("git commit"):
                mlflow.set_tag("mlflow.source.git.commit", commit)
        if self._config.tracing:
            self._tracing.enter_context(_tracing(self._redact))

    def tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        if not self._run_id:
            return
        import mlflow

        try:
            mlflow.set_tag(name, self._redact(value))
        except Exception as error:  # as in begin
            self._notify(f"MLflow could not be told that the run is {value}: {self._redact(first_line(error))}")

    @contextmanager
    def span(self, name: str, question: str) -> Iterator[None]:
        """Gather the calls within in a trace of their own."""
        if not (self._run_id and self._config.tracing):
            yield
            return
        import mlflow

        fault: BaseException | None = None
        with mlflow.start_span(name, attributes={"question": question}) as span:
            if mlflow.get_current_active_span():  # else this trace is not of the share that MLflow samples
                mlflow.update_current_trace(tags={"question": question, "step": name})
            try:
                yield
            except BaseException as error:  # MLflow would keep its message, which may hold a key
                fault = error
                span.set_status("ERROR")
        if fault is not None:
            raise fault

    def end(self, run: Run, summary: RunSummary, stopped: str) -> None:
        """Tell what came of the run.

        Args:
            run: All of it.
            summary: In a few numbers.
            stopped: Empty if it is finished.
        """
        if not self._run_id:
            return
        import mlflow

        try:
            self._tracing.close()
            for part in parts(_metrics_of(summary)):
                mlflow.log_metrics(part)
            with tempfile.TemporaryDirectory() as folder:
                for file in _artifacts(run, summary, Path(folder)):
                    mlflow.log_artifact(str(file))
            mlflow.set_tag("mlflow.loggedArtifacts", json.dumps([{"path": QUESTIONS, "type": "table"}]))
            mlflow.end_run("KILLED" if stopped else "FINISHED")
        except Exception as error:  # as in begin
            self._notify(
                f"MLflow could not be told of run '{run.name}': {self._redact(first_line(error))}. "
                "Nothing is lost: tell it with --resume"
            )


@contextmanager
def _tracing(redact: Redactor) -> Iterator[None]:
    """Make a span of each call of a module or an LM within."""
    import dspy
    import mlflow
    from dspy.dsp.utils.settings import main_thread_config
    from mlflow.dspy.callback import MlflowCallback

    class Callback(MlflowCallback):
        """MLflow's own, which would keep the messages of errors as they are."""

        def on_lm_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_lm_end(call_id, outputs, _without_secrets(exception, redact))

        def on_module_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_module_end(call_id, outputs, _without_secrets(exception, redact))

        # what an adapter is given and gives is what its module and its LM are given and give: half of all spans
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
        mlflow.dspy.autolog()  # adds no callback of its own beside one of its kind
        try:
            yield
        finally:
            mlflow.dspy.autolog(disable=True)
            dspy.configure(**before)  # MLflow has taken the callbacks of this context for those of the process
            mlflow.flush_trace_async_logging()


def _ignore(self: Any, *_: object, **__: object) -> None:
    pass


def _without_secrets(exception: Exception | None, redact: Redactor) -> Exception | None:
    return exception and RuntimeError(f"{type(exception).__name__}: {redact(str(exception))}")


def _metrics_of(summary: RunSummary) -> dict[str, float]:
    """As `linkage/mrr` overall and `linkage/mrr/reason` by type."""
    values = dict(_group_metrics(summary.overall, ""))
    for name, group in summary.types.items():
        values |= dict(_group_metrics(group, f"/{name}"))
    usage = summary.spent.usage
    values |= {"spent/lm_calls": usage.lm_calls, "spent/tokens": summary.spent.tokens}
    if usage.uncounted:
        values["spent/uncounted"] = usage.uncounted
    if summary.spent.cost is not None:
        values["spent/cost"] = summary.spent.cost
    return values


def _group_metrics(group: GroupSummary, suffix: str) -> Iterator[tuple[str, float]]:
    yield from ((f"answers/{f.name}{suffix}", float(getattr(group, f.name))) for f in fields(Tally))
    yield from ((f"cost/{name}{suffix}", mean) for name, mean in group.cost.items())
    for name, metric in group.metrics.items():
        counts = {"n": metric.n, "failed": metric.failed, "not_measurable": metric.not_measurable}
        for measure, value in {**metric.measures, **counts}.items():
            yield f"{name}/{measure}{suffix}", float(value)


def _artifacts(run: Run, summary: RunSummary, folder: Path) -> Iterator[Path]:
    # the form of MLflow's own log_table, which would add its rows to those told before the run was continued
    rows = [_row(q) for q in run.questions]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = folder / QUESTIONS
    cells = [[row.get(name) for name in columns] for row in rows]
    table.write_text(json.dumps({"columns": columns, "data": cells}, ensure_ascii=False), "utf-8")
    yield table
    traces = folder / TRACES
    with traces.open("w", encoding="utf-8") as lines:
        for question in run.questions:
            if question.answer:
                data = {"id": question.id, **question.answer.to_dict()}
                lines.write(json.dumps(data, ensure_ascii=False) + "\n")
    yield traces
    results = folder / "results.json"
    results.write_text(json.dumps(summary.to_dict(), ensure_ascii=False, indent=1), "utf-8")
    yield results


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
