"""Programs that are served, the specs that they are opened from, and reloading them without interrupting questions."""

import asyncio
import gc
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import dspy
from typing_extensions import TypedDict

from typedrag.core.call_context import use_context
from typedrag.core.errors import RetrievalError, Unavailable, first_line
from typedrag.core.records import Answer
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import check_lm, open_lm, use_lm
from typedrag.lms.trace import limit_tokens
from typedrag.programs import Program
from typedrag.programs.loading import ProgramSource, program_source
from typedrag.retrieval import open_reranker
from typedrag.serving.service import Service, limit_time, run_in_background

_REGISTRY = "models:/"
# settings of MLflow with which an unreachable registry fails within seconds, not minutes
_WAITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class ProgramDetails(TypedDict):
    """A served program; scores are those of its compiled version on the test split, by their names."""

    name: str
    program: str
    version: str
    fingerprint: str
    lm: str
    scores: dict[str, Any]
    since: str


@dataclass(frozen=True)
class LoadedProgram:
    """A program that answers requests; after a reload, requests under way keep the old one.

    Clients choose it by its name. They do not see the spec it was opened from, since it may be a path. The version is
    that of the registered model, the fingerprint and the scores on the test split those of the compiled program.
    """

    name: str
    spec: str
    program: Program
    lm: dspy.LM
    version: str = ""
    fingerprint: str = ""
    scores: Mapping[str, Any] = field(default_factory=dict)
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_dict(self) -> ProgramDetails:
        """The fields that clients may see, as JSON values."""
        lm = self.lm.model
        return {
            "name": self.name,
            "program": self.program.name,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "lm": Path(lm).name if "//" in lm else lm,  # vLLM calls models from folders by their path
            "scores": dict(self.scores),
            "since": self.since.isoformat(timespec="seconds"),
        }


@dataclass(frozen=True)
class ProgramSpec:
    """The source of a served program, from which it can be opened again after a change.

    Attributes:
        spec: `typed_rag`, a folder, or `models:/NAME@ALIAS`; as `NAME=SPEC` it is served by that name.
        lm: Spec of the LM; None is the default, as of the index, the retriever and the reranker.
        lm_settings: Arguments of `open_lm`, such as `api_base` and `timeout`.
        options: Options that override the program's own.
    """

    spec: str
    lm: str | None = None
    lm_settings: Mapping[str, Any] = field(default_factory=dict)
    index: Path | str | None = None
    retriever: str | None = None
    reranker: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        name, equals, place = self.spec.partition("=")
        return place if equals and "/" not in name else self.spec

    @property
    def name(self) -> str:
        """The name by which clients choose it: from the spec, or that of the registered model, folder or program."""
        if self.place != self.spec:
            return self.spec.partition("=")[0]
        return self._model if self.registered else Path(self.place).resolve().name  # that of folder "." too

    @property
    def _model(self) -> str:
        return self.place.removeprefix(_REGISTRY).partition("@")[0].partition("/")[0]

    @property
    def registered(self) -> bool:
        return self.place.startswith(_REGISTRY)

    def version(self) -> str:
        """The current version in the registry; empty if it is no registered model."""
        return str(_mlflow().registered_version(self.place)) if self.registered else ""

    def open(self) -> LoadedProgram:
        version = self.version()
        place = f"{_REGISTRY}{self._model}/{version}" if version else self.place
        own = not place.startswith((_REGISTRY, "runs:/"))
        source: ProgramSource = program_source(place) if own else _mlflow().program_source(place)
        options = source.options(overrides=self.options)
        source.check_unlabelled(options, self.retriever)
        check_lm(self.lm)  # opening an index may start Java
        retriever = source.open_retriever(self.index, self.retriever)
        program = source.build(retriever, open_reranker(self.reranker or source.reranker), options)
        lm = track_calls(open_lm(self.lm, **self.lm_settings))
        compiled: dict[str, Any] = {}
        if source.compiled is not None:
            scores = {name: asdict(score) for name, score in source.compiled.about.compiled.items()}
            compiled = {"fingerprint": source.compiled.fingerprint, "scores": scores}
        return LoadedProgram(self.name, self.place, program, lm, version, **compiled)


def _mlflow() -> ModuleType:
    """The code that loads what MLflow has: only a server of such programs needs it."""
    for name, value in _WAITS.items():
        os.environ.setdefault(name, value)
    from typedrag.experiments import loading

    return loading


logger = logging.getLogger(__name__)

EXAMPLE = "Why does bread rise?"  # that a reloaded program is tried on
_UNREACHABLE = "The registry, the LM or the index cannot be used now; this one stays."
_REFUSED = "The new one was refused, since it {}; this one stays."


def freeze_loaded() -> None:
    """Leave what is loaded out of later garbage collections: a full one takes 250 ms with DSPy and torch, in which no
    request continues. What was frozen before, such as an older program, is collected first."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Reloader:
    """Reloads programs, tries each on a question, and only then replaces the old one.

    A broken program is refused, as the log, the metrics and `/v1/program` say, and is not tried again until its alias
    moves or a reload is requested. If the registry, the LM or the index cannot be used, it is tried again at the next
    check of the registry.
    """

    def __init__(self, service: Service, sources: Sequence[ProgramSpec]) -> None:
        self._service, self._sources = service, tuple(sources)
        self._refused: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Start checking the registry every `registry_seconds` for programs that are registered models."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(self._service.settings.registry_seconds)
                for source in watched:
                    await self.look(source)

        if watched := [source for source in self._sources if source.registered]:
            self._begin(watch())

    def reload_all(self) -> None:
        for source in self._sources:
            self._begin(self.reload(source))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def look(self, source: ProgramSpec) -> None:
        """Reload a program if its alias has moved."""
        name = source.name
        try:
            version = await run_in_background(source.version)
        except Exception as error:
            self._keep(name, "unavailable", error)
            return
        if version == self._service.programs[name].version:
            self._refused.pop(name, None)
            self._service.reload_errors.pop(name, None)
        elif version != self._refused.get(name):
            await self.reload(source, version)

    async def reload(self, source: ProgramSpec, version: str = "") -> None:
        """Reload a program, and keep the old one if the new one fails, or something that both need."""
        name, service = source.name, self._service
        async with self._turn:
            if service.reload_errors.get(name) != _UNREACHABLE:  # else it is tried at every check
                logger.warning("program %s is being loaded%s", name, _version(version))
            service.reloading = name
            try:
                await self._replace(source, version)
            finally:
                service.reloading = ""

    async def _replace(self, source: ProgramSpec, version: str) -> None:
        name = source.name
        try:
            loaded = await run_in_background(source.open)
        except Exception as error:
            elsewhere = isinstance(error, Unavailable) and not isinstance(error, RetrievalError)
            self._keep(name, "unavailable" if elsewhere else "cannot be opened", error, version)
            return
        try:
            await self._try(loaded)
        except Exception as error:
            reason = f"has no answer to {EXAMPLE!r}"
            try:
                await self._try(self._service.programs[name])
            except Exception:  # the old program fails as well: the fault is the LM's or the index's
                reason = "unavailable"
            self._keep(name, reason, error, loaded.version)
            return
        self._refused.pop(name, None)
        self._service.swap(loaded)
        freeze_loaded()
        self._service.metrics.reloads.labels(name, "swapped").inc()
        logger.warning("program %s was reloaded%s", name, _version(loaded.version))

    async def _try(self, loaded: LoadedProgram) -> None:
        settings = self._service.settings
        with use_context(fresh=True), use_lm(loaded.lm), limit_tokens(settings.question_tokens):
            prediction = await limit_time(settings.deadline, loaded.program.acall(question=EXAMPLE))
        if not Answer.from_prediction(prediction).answer.strip():
            raise ValueError("its answer is empty")

    def _keep(self, name: str, reason: str, error: Exception, version: str = "") -> None:
        outcome, message = "refused", _REFUSED.format(reason)
        if reason == "unavailable":
            outcome, message = reason, _UNREACHABLE
        else:
            self._refused[name] = version
        self._service.metrics.reloads.labels(name, outcome).inc()
        if self._service.reload_errors.get(name) != message:  # logged once, not at every check
            logger.error("program %s was not reloaded (%s): %s", name, outcome, first_line(error))
        self._service.reload_errors[name] = message


def _version(version: str) -> str:
    return f", version {version}" if version else ""
