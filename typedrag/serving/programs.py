"""Programs that are served, and the specs that they are opened from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import dspy

from typedrag.lms.cost import track_calls
from typedrag.lms.lm import open_lm
from typedrag.programs import Program
from typedrag.programs.loading import ProgramSource, program_source
from typedrag.retrieval import open_reranker

_REGISTRY = "models:/"
_WAITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""MLflow's settings with which an unreachable registry fails within seconds, not minutes."""


@dataclass(frozen=True)
class LoadedProgram:
    """A program that answers requests; after a reload, requests under way keep the old one.

    Attributes:
        name: The name by which clients choose it.
        spec: The spec it was opened from; clients do not see it, since it may be a path.
        program: The program, ready to be called.
        lm: The LM that answers.
        version: The version of the registered model; empty if it is none.
        fingerprint: The fingerprint of the compiled program; empty if it is not compiled.
        scores: The compiled program's scores on its test split: mean, interval and n by measure.
        since: When it was loaded.
    """

    name: str
    spec: str
    program: Program
    lm: dspy.LM
    version: str = ""
    fingerprint: str = ""
    scores: Mapping[str, Any] = field(default_factory=dict)
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_dict(self) -> dict[str, Any]:
        """The fields that clients may see, as JSON values."""
        return {
            "name": self.name,
            "program": self.program.name,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "lm": _without_path(self.lm.model),
            "scores": dict(self.scores),
            "since": self.since.isoformat(timespec="seconds"),
        }


@dataclass(frozen=True)
class ProgramSpec:
    """The source of a served program, from which it can be opened again after a change.

    Attributes:
        spec: `typed_rag`, a folder, or `models:/NAME@ALIAS`; as `NAME=SPEC` it is served by that name.
        lm: Spec of the LM; None is the default.
        lm_settings: Arguments of `open_lm`, such as `api_base` and `timeout`.
        index: Folder of the index; None is the default.
        retriever: Spec of the retriever; None is the program's.
        reranker: Spec of the reranker; None is the program's.
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
        """The spec without the name."""
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
        """True if it is a registered model."""
        return self.place.startswith(_REGISTRY)

    def version(self) -> str:
        """The current version in the registry; empty if it is no registered model."""
        return str(_mlflow().registered_version(self.place)) if self.registered else ""

    def open(self) -> LoadedProgram:
        """Open the program with its LM and its index."""
        version = self.version()
        source = _source(f"{_REGISTRY}{self._model}/{version}" if version else self.place)
        options = source.options(as_published=False, overrides=self.options)
        source.check_unlabelled(options, self.retriever)
        retriever = source.open_retriever(self.index, self.retriever)
        program = source.build(retriever, open_reranker(self.reranker or source.reranker), options)
        lm = track_calls(open_lm(self.lm, **self.lm_settings))
        return LoadedProgram(self.name, self.place, program, lm, version, **_compiled(source))


def _source(place: str) -> ProgramSource:
    if not place.startswith((_REGISTRY, "runs:/")):
        return program_source(place)
    return _mlflow().program_source(place)


def _mlflow() -> ModuleType:
    """The code that loads what MLflow has: only a server of such programs needs it."""
    for name, value in _WAITS.items():
        os.environ.setdefault(name, value)
    from typedrag.experiments import loading

    return loading


def _without_path(model: str) -> str:
    """The name of a model without its path, by which vLLM calls models from folders."""
    return Path(model).name if "//" in model else model


def _compiled(source: ProgramSource) -> dict[str, Any]:
    if source.compiled is None:
        return {}
    scores = {name: asdict(score) for name, score in source.compiled.about.compiled.items()}
    return {"fingerprint": source.compiled.fingerprint, "scores": scores}
