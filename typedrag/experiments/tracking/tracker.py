"""Runs in MLflow: begun or resumed, logged to, and ended."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from platformdirs import user_data_dir

from typedrag.core.errors import InputError, TypedRAGError, Unavailable, first_line
from typedrag.core.extras import require
from typedrag.core.proxies import find_proxy
from typedrag.core.redaction import redact_values
from typedrag.datasets.dataset import Dataset
from typedrag.experiments.config import TrackingConfig
from typedrag.experiments.formats import flatten
from typedrag.experiments.results import FEWEST, QuestionResult, Run, RunSummary, Tally
from typedrag.files.locks import wait_for_lock
from typedrag.files.text_files import PART, temporary_path, write_text
from typedrag.programs.program import program_class

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nobody else needs to know what is evaluated
    # By MLflow's defaults, ten threads wait for one another to write five spans each to SQLite, which takes
    # twice the time, and spans beyond a queue of 1,000 are dropped.
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS": "1",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "500",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_QUEUE_SIZE": "100000",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # runs have only a few small files
    "MLFLOW_UV_AUTO_DETECT": "false",  # it would copy files of the working folder into a model
}
_SQLITE = "sqlite:///"
_KIND_OF_PAGE = "mlflow.experimentKind"  # pages of runs, not of traces; MLflow 3.17 ignores it
_SOCKS = {"package": "PySocks", "module": "socks"}  # by which requests, and so MLflow, takes a SOCKS proxy


def tracking_uri(config: TrackingConfig) -> str:
    """The URI of the store: the configuration's, `MLFLOW_TRACKING_URI`, else SQLite in the folder of what nobody can
    make again: `TYPEDRAG_DATA`, else the platform's."""
    data = os.environ.get("TYPEDRAG_DATA") or user_data_dir("typedrag", appauthor=False)
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{Path(data) / 'mlflow' / 'mlflow.db'}"


def experiment_name(config: TrackingConfig) -> str:
    return config.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "typedrag"


def connect(config: TrackingConfig) -> Any:
    """Return MLflow, connected to the store and the experiment of a configuration, which are made if need be."""
    mlflow = _quiet()
    uri = tracking_uri(config)
    artifacts = None
    if uri.startswith(_SQLITE):
        file = Path(uri.removeprefix(_SQLITE)).resolve()
        artifacts = (file.parent / "artifacts").as_uri()
        _make_store(file, artifacts)
    find_proxy(uri, **_SOCKS)
    mlflow.set_tracking_uri(uri)
    name = experiment_name(config)
    if mlflow.get_experiment_by_name(name) is None:
        try:
            mlflow.create_experiment(name, artifact_location=artifacts)
        except mlflow.MlflowException:  # another process may have been first
            if mlflow.get_experiment_by_name(name) is None:
                raise
    if _KIND_OF_PAGE not in mlflow.set_experiment(name).tags:
        mlflow.set_experiment_tag(_KIND_OF_PAGE, "custom_model_development")
    return mlflow


def _make_store(file: Path, artifacts: str) -> None:
    """Make an empty store atomically: a store that a kill leaves half made can never be used again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with nullcontext() if file.exists() else wait_for_lock(file):
        if not file.exists():  # nor has another process made it meanwhile
            from mlflow.store.tracking import sqlalchemy_store

            for left in file.parent.glob(f".{file.name}.*{PART}*"):  # of killed processes
                left.unlink()
            part = temporary_path(file)
            sqlalchemy_store.SqlAlchemyStore(f"{_SQLITE}{part}", artifacts).engine.dispose()
            part.replace(file)


def connect_to_existing(uri: str | None, name: str) -> Any:
    """Return MLflow, connected to an existing store: by default the one that MLflow is set to, else `tracking_uri`.

    Errors call the wanted `name`.
    """
    mlflow = _quiet()
    if uri or not mlflow.is_tracking_uri_set():
        store = tracking_uri(TrackingConfig(uri=uri))
        if store.startswith(_SQLITE) and not Path(store.removeprefix(_SQLITE)).is_file():
            raise InputError(f"{name} cannot be had: MLflow keeps nothing at {store}", "Set MLFLOW_TRACKING_URI")
        find_proxy(store, **_SOCKS)
        mlflow.set_tracking_uri(store)
    return mlflow


def _quiet() -> Any:
    require("mlflow")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return mlflow


@contextmanager
def faults_of_store(redact: Callable[[str], str], hint: str) -> Iterator[None]:
    """Turn any error within the context, except those of typedrag, into an `Unavailable` of one line."""
    try:
        yield
    except TypedRAGError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy, requests and others each raise their own
        raise Unavailable(f"MLflow's store cannot be used: {redact(first_line(error))}", hint) from error


PARENT, _COMMIT, _TABLES = "mlflow.parentRunId", "mlflow.source.git.commit", "mlflow.loggedArtifacts"
_RUN_OF_TRACE, _NOTE = "mlflow.sourceRun", "mlflow.note.content"
_ID_FILE = "mlflow.json"
_HINT = "Name another --tracking-uri, or go without: --no-tracking"
_LONGEST_PARAMETER, _LONGEST_DIGEST, _MOST_CHILDREN = 6000, 36, 10_000
_ARROW = " → "
TRIAL = "trial"
_ELSEWHERE = ("name", "data", "licence", "git commit")  # in the run's name, data and tags


def parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that become a run's parameters, a key a thing: of the options, those that its program reads and that
    no knob sets."""
    names = {"lm_settings": "lm settings", "dataset_fingerprint": "dataset fingerprint"}  # of sweeps
    shown = {names.get(n, n): value for n, value in settings.items() if n not in (*_ELSEWHERE, "lms", "options")}
    for role, lm in (settings.get("lms") or {}).items():  # of compiles
        prefix = "" if role == "task" else f"{role} "
        shown |= {f"{prefix}lm": lm["spec"], f"{prefix}lm settings": {n: v for n, v in lm.items() if n != "spec"}}
    if options := settings.get("options"):
        try:
            reads: Collection[str] = program_class(str(settings.get("program"))).reads
        except InputError:  # of no program here
            reads = options
        shown["options"] = {n: v for n, v in options.items() if n in reads and n not in (settings.get("knobs") or ())}
    return shown


class Tracker:
    """A run in MLflow; nothing is logged where tracking is off, and its `id` is empty.

    Texts are logged without what `redact` hides. Once the run exists, faults of the store do not end the work: `notify`
    hears what could not be logged, and `failed` is set, for every call to a store that is gone has to wait.
    """

    def __init__(self, config: TrackingConfig, redact: Callable[[str], str], notify: Callable[[str], object]) -> None:
        self.config, self.redact = config, redact
        self.id = self.name = ""
        self.finished = self.failed = False
        self.client: Any = None
        self._notify = notify
        self._experiment = ""
        self._children: dict[str, Tracker] | None = None

    @property
    def works(self) -> bool:
        return bool(self.id) and not self.failed

    def begin(
        self,
        name: str,
        settings: Mapping[str, Any],
        run_id: str | None = None,
        remember: Callable[[str], object] = lambda run_id: None,
        *,
        kind: str,
        dataset: Dataset | None = None,
        tags: Mapping[str, str] | None = None,
        hint: str = _HINT,
    ) -> None:
        """Begin the run, or resume an earlier one, unless tracking is off; `remember` gets the id of a new run.

        The settings that the run depends on are JSON values, of which `parameters` become MLflow's; empty tags are left
        out. The run's name in MLflow also tells its kind, program and dataset.
        """
        if not self.config.enabled:
            return
        self.name = self.redact(name)
        data = "" if dataset is None else Path(dataset.source).stem if dataset.name == "file" else dataset.name
        about = {"kind": kind, "program": str(settings.get("program") or ""), "dataset": data}
        with faults_of_store(self.redact, hint):
            if self.resume(run_id):
                self.client.update_run(self.id, status="RUNNING")
            else:
                from mlflow.tracking.context.registry import resolve_tags

                subject = " on ".join(filter(None, (about["program"], data)))
                own = "" if name in (kind, about["program"]) else name
                title = name if kind == TRIAL else f"{kind} {own}".strip() + (subject and f": {subject}")
                run = self.client.create_run(self._experiment, run_name=self.redact(title), tags=resolve_tags())
                self.id = run.info.run_id
                remember(self.id)
                if dataset is not None:
                    self._log_dataset(dataset, str(settings.get("split") or ""))
            self.log_settings(parameters(settings))
            named = {**about, **(tags or {}), _COMMIT: str(settings.get("git commit") or "")}
            self.tag({tag: value for tag, value in named.items() if value})

    def _log_dataset(self, dataset: Dataset, split: str) -> None:
        from mlflow.entities import Dataset as LoggedDataset
        from mlflow.entities import DatasetInput, InputTag

        source = json.dumps({"uri": self.redact(dataset.source)})
        entity = LoggedDataset(dataset.name, dataset.fingerprint[:_LONGEST_DIGEST], "typedrag", source)
        context = [InputTag("mlflow.data.context", split)] if split else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(entity, context)])

    def conclude(self, verdict: str) -> None:
        """Tag the run with a verdict, in which its name then ends."""
        verdict = verdict or "no better"
        self.tag({"verdict": verdict})
        name = self.client.get_run(self.id).info.run_name.partition(_ARROW)[0]
        self.client.update_run(self.id, name=f"{name}{_ARROW}{verdict}")

    def begin_folder(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        kind: str,
        dataset: Dataset | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Begin the run of a folder, whose name it has and where its id is kept; see `begin`."""
        file = folder / _ID_FILE
        try:
            run_id = str(json.loads(file.read_text("utf-8"))["run"])
        except (OSError, ValueError, KeyError, TypeError):
            run_id = None

        def remember(new: str) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps({"run": new}) + "\n")

        self.begin(folder.resolve().name, settings, run_id, remember, kind=kind, dataset=dataset, tags=tags)

    def resume(self, run_id: str | None) -> bool:
        """Connect to the store and log to the run with this id; False if there is none, or it was deleted."""
        mlflow = connect(self.config)
        self.client = mlflow.MlflowClient()
        self._experiment = mlflow.get_experiment_by_name(experiment_name(self.config)).experiment_id
        try:
            run = self.client.get_run(run_id) if run_id else None
        except mlflow.MlflowException:
            return False
        if run is None or run.info.lifecycle_stage != "active":
            return False
        self.id, self.name, self._experiment = run.info.run_id, run.info.run_name, run.info.experiment_id
        return True

    def child(self, name: str, tags: Mapping[str, str]) -> Tracker:
        """The nested run of this name, also of an earlier session; begun if there is none."""
        if self._children is None:
            query = f"tags.`{PARENT}` = '{self.id}'"
            runs = self.client.search_runs([self._experiment], query, max_results=_MOST_CHILDREN)
            self._children = {run.info.run_name: self._open_nested(run) for run in runs}
        if name not in self._children:
            run = self.client.create_run(self._experiment, run_name=name, tags={PARENT: self.id, **tags})
            self._children[name] = self._open_nested(run)
        return self._children[name]

    def _open_nested(self, run: Any) -> Tracker:
        child = copy(self)
        child.id, child.name, child.finished = run.info.run_id, run.info.run_name, run.info.status == "FINISHED"
        child._children = None
        return child

    @contextmanager
    def attempt(self, what: str, consequence: str) -> Iterator[None]:
        """Turn an error within the context into a notice that `what` could not be logged, and what follows."""
        try:
            yield
        except Exception as error:  # MLflow, SQLAlchemy, requests and others each raise their own
            self.failed = True
            self._notify(f"could not log {what} to MLflow: {self.redact(first_line(error))}. {consequence}")

    def log(self, values: Mapping[str, float], step: int = 0) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.id, [Metric(name, float(value), now, step) for name, value in values.items()])

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log the settings that the run does not have yet as parameters, which MLflow never changes."""
        from mlflow.entities import Param

        logged = self.client.get_run(self.id).data.params
        texts = {
            re.sub(r"[^\w./ -]", "_", name): str(value)[:_LONGEST_PARAMETER]
            for name, value in flatten(redact_values(settings, self.redact))
            if value not in (None, "", {}, [])
        }
        self.client.log_batch(self.id, params=[Param(name, text) for name, text in texts.items() if name not in logged])

    def tag(self, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self.client.set_tag(self.id, name, self.redact(value))

    def link(self, page: str, words: str) -> None:
        """Link an artifact that is a page in the run's description, which MLflow shows first."""
        self.client.set_tag(
            self.id, _NOTE, f"[{words}](#/experiments/{self._experiment}/runs/{self.id}/artifacts/{page})"
        )

    def artifact(self, name: str, text: str) -> None:
        self.client.log_text(self.id, self.redact(text), name)

    def artifacts(self, folder: Path, target: str = "") -> None:
        self.client.log_artifacts(self.id, str(folder), target or None)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log rows as a table that MLflow shows; its own `log_table` would append them to an earlier session's."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        cells = [[row.get(column) for column in columns] for row in rows]
        self.artifact(name, json.dumps({"columns": columns, "data": cells}, ensure_ascii=False))
        self.client.set_tag(self.id, _TABLES, json.dumps([{"path": name, "type": "table"}]))

    @contextmanager
    def span(self, name: str, question: str) -> Iterator[None]:
        """Gather the calls within the context in a trace of the run, if calls are traced; see `trace_calls`."""
        if not (self.id and self.config.tracing):
            yield
            return
        import mlflow
        from mlflow.entities.trace_location import MlflowExperimentLocation

        fault: BaseException | None = None
        place = MlflowExperimentLocation(self._experiment)  # else that of a run that the caller has begun
        with mlflow.start_span(name, attributes={"question": question}, trace_destination=place) as span:
            if mlflow.get_current_active_span():  # MLflow samples traces, and may leave this one out
                mlflow.update_current_trace({"question": question, "step": name}, {_RUN_OF_TRACE: self.id})
            try:
                yield
            except BaseException as error:  # MLflow would keep its message, which may hold a key
                fault = error
                span.set_status("ERROR")
        if fault is not None:
            raise fault

    def end(self, *, stopped: bool = False) -> None:
        self.client.set_terminated(self.id, "KILLED" if stopped else "FINISHED")
        self.finished = not stopped


def check_store(config: TrackingConfig, redact: Callable[[str], str]) -> None:
    """Raise an `Unavailable` for a store that cannot be used, before a folder is made that blocks the next attempt."""
    if config.enabled:
        with faults_of_store(redact, _HINT):
            connect(config)


@contextmanager
def trace_calls(tracker: Tracker) -> Iterator[None]:
    """Record each call of a module or an LM within the context as a span, if the run is to be traced."""
    if not (tracker.id and tracker.config.tracing):
        yield
        return
    import dspy
    import mlflow
    from dspy.dsp.utils.settings import main_thread_config
    from mlflow.dspy.callback import MlflowCallback

    redact = tracker.redact

    def hide_secrets(exception: Exception | None) -> Exception | None:
        return exception and RuntimeError(f"{type(exception).__name__}: {redact(str(exception))}")

    class Callback(MlflowCallback):
        """MLflow's callback, with redacted messages of errors."""

        def on_lm_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_lm_end(call_id, outputs, hide_secrets(exception))

        def on_module_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_module_end(call_id, outputs, hide_secrets(exception))

        # an adapter's spans would repeat those of its module and its LM: half of all spans
        on_adapter_format_start = on_adapter_parse_start = lambda self, *_, **__: None
        on_adapter_format_end = on_adapter_parse_end = lambda self, *_, **__: None

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


NOTE = "mlflow run"


def begin_run(tracker: Tracker, run: Run, dataset: Dataset, note: Callable[[str, str], None]) -> None:
    """Begin MLflow's run of an evaluation, or resume the one that the run's note names; `note` makes that note."""
    settings = {name: value for name, value in run.settings.items() if name != NOTE}
    known, remember = run.settings.get(NOTE), partial(note, NOTE)
    tracker.begin(run.name, settings, known, remember, kind="evaluation", dataset=dataset)


def log_run(
    tracker: Tracker, run: Run, summary: RunSummary, stopped: str, tags: Mapping[str, str] | None = None
) -> None:
    if not tracker.id:
        return
    with tracker.attempt(f"run '{run.name}'", "Nothing is lost: log it with --resume"):
        overall = summary.overall
        values = {f"answers/{f.name}": float(getattr(overall, f.name)) for f in fields(Tally)}
        values |= {f"cost/{name}": mean for name, mean in overall.cost.items()}
        for name, metric in overall.metrics.items():
            counts = {"n": metric.n, "failed": metric.failed, "not_measurable": metric.not_measurable}
            values |= {f"{name}/{count}": float(n) for count, n in counts.items() if n or count != "not_measurable"}
        groups = {"": overall, **{f"/{name}": g for name, g in summary.types.items() if g.questions >= FEWEST}}
        for suffix, group in groups.items():  # such as linkage/mrr overall and linkage/mrr/reason by type
            for name, metric in group.metrics.items():
                values |= {f"{name}/{measure}{suffix}": float(value) for measure, value in metric.measures.items()}
        tracker.log(values | summary.spent.metrics)
        answers = [{"id": q.id, **q.answer.to_dict()} for q in run.questions if q.answer]
        tracker.artifact("traces.jsonl", "".join(json.dumps(a, ensure_ascii=False) + "\n" for a in answers))
        tracker.artifact("results.json", json.dumps(summary.to_dict(), ensure_ascii=False, indent=1))
        tracker.table("questions.json", [_row(question) for question in run.questions])
        tracker.tag(tags or {})
        tracker.end(stopped=bool(stopped))


def _row(question: QuestionResult) -> dict[str, Any]:
    a = question.answer
    row: dict[str, Any] = {
        "id": question.id, "question": question.question, "question_type": str(question.question_type or ""),
        "subset": question.subset, "answer": a.answer if a else None, "error": question.error,
        "fallback": a.fallback if a else "", "answered": str(a.answered) if a else "",
        "grounded": a.grounded if a else None, "lm_calls": a.usage.lm_calls if a else None,
        "seconds": a.seconds if a else None,
    }  # fmt: skip
    for name, result in question.metrics.items():
        row |= {f"{name}/{measure}": value for measure, value in result.measures.items()}
        row |= {f"{name}/score": result.score, f"{name}/feedback": result.feedback, f"{name}/problem": result.problem}
    return row
