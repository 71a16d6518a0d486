"""A program that is served: built, with its LM, and what clients may know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy

from typedrag.experiments.loading import REGISTRY, ProgramSource, program_source, registered_version
from typedrag.lms.lm import open_lm
from typedrag.lms.spending import metered
from typedrag.programs import Program
from typedrag.retrieval import open_reranker


@dataclass(frozen=True)
class Served:
    """A program that answers requests; a request under way keeps the one that it began with.

    Attributes:
        name: By which clients choose it.
        spec: By which the server was told of it; it may be a path, so clients do not see it.
        program: Ready to be called.
        lm: That answers.
        version: Of the registered model; empty if it is none.
        fingerprint: Of what was compiled; empty if nothing was.
        scores: Of the compiled program on its test split: by measure the mean, its interval and n.
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
        """What clients may know, as plain values that JSON can hold."""
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
class ServedSource:
    """Where a served program comes from, so that it can be opened again when it has changed.

    Attributes:
        spec: `typed_rag`, a folder, or `models:/NAME@ALIAS`; as `NAME=SPEC` it is served by that name.
        lm: Spec of the LM; None is the default.
        lm_settings: Of `open_lm`, such as `api_base` and `timeout`.
        index: Folder of the index; None is the default.
        retriever: Spec; None is the program's.
        reranker: Spec; None is the program's.
        options: Over the program's own.
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
        """The spec without the name that it is served by."""
        name, equals, place = self.spec.partition("=")
        return place if equals and "/" not in name else self.spec

    @property
    def name(self) -> str:
        """By which clients choose it: the one given, that of the registered model, the folder or the program."""
        if self.place != self.spec:
            return self.spec.partition("=")[0]
        return self._model if self.registered else Path(self.place).name

    @property
    def _model(self) -> str:
        return self.place.removeprefix(REGISTRY).partition("@")[0].partition("/")[0]

    @property
    def registered(self) -> bool:
        """Whether it is a registered model."""
        return self.place.startswith(REGISTRY)

    def version(self) -> str:
        """The version that the registry has now; empty if it is no registered model.

        Raises:
            InputError: If the registry has none such.
            Unavailable: If it cannot be used.
        """
        return registered_version(self.place) if self.registered else ""

    def open(self) -> Served:
        """The program, its LM and its index, ready.

        Raises:
            TypedRAGError: If one of them cannot be had; see `program_source`, `open_lm` and `open_retriever`.
        """
        version = self.version()
        source = program_source(f"{REGISTRY}{self._model}/{version}" if version else self.place)
        options = source.options(as_published=False, overrides=self.options)
        source.check(options)
        retriever = source.open_retriever(self.index, self.retriever)
        program = source.build(retriever, open_reranker(self.reranker or source.reranker), options)
        lm = metered(open_lm(self.lm, **self.lm_settings))
        return Served(self.name, self.place, program, lm, version, **_compiled(source))


def _without_path(model: str) -> str:
    """The name of a model; vLLM calls one from a folder by its whole path."""
    return Path(model).name if "//" in model else model


def _compiled(source: ProgramSource) -> dict[str, Any]:
    if source.compiled is None:
        return {}
    scores = {name: asdict(score) for name, score in source.compiled.about.compiled.items()}
    return {"fingerprint": source.compiled.fingerprint, "scores": scores}
