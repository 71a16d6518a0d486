"""Load programs by a name, the folder of a compiled program, or a model or run of MLflow."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import dspy

from typedrag.errors import InputError, first_line
from typedrag.experiments.tracking.mlflow_store import connect_to_existing, faults_of_store
from typedrag.lms.models import MODELS
from typedrag.programs import Options, Program, TypedRAG, build_program, program_class, program_names
from typedrag.programs.artifact.compiled import PROGRAM, Compiled, uncompiled
from typedrag.programs.artifact.folder import has_part
from typedrag.programs.options import TYPE_CLASSIFIERS
from typedrag.programs.published import published_reranker
from typedrag.redaction import redactor_for
from typedrag.retrieval import BM25Setting, Reranker, Retriever, check_retriever, open_reranker, open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.relevance import RELEVANCE_FILTERS

logger = logging.getLogger(__name__)

ARTIFACT = "program"
"""The artifact of a registered model that holds its compiled program's folder."""
REGISTRY = "models:/"
"""The prefix of registered models' specs."""
_KEPT_BY_MLFLOW = (REGISTRY, "runs:/")
_OTHER_STORE = "Set MLFLOW_TRACKING_URI to another"
_FORMS = "a folder, models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID/PATH"


@dataclass(frozen=True)
class ProgramSource:
    """A program before it is built.

    Attributes:
        name: The name of the program.
        compiled: The compiled state; None if it was not compiled.
    """

    name: str
    compiled: Compiled | None = None

    @property
    def retrieves(self) -> bool:
        """True if the program needs a retriever."""
        return program_class(self.name).retrieves

    @property
    def reranker(self) -> str:
        """The spec of the reranker to use by default.

        Raises:
            InputError: If it does not come with typedrag: a model that a compiled program of strangers
                names is not loaded from anywhere.
        """
        if self.compiled is None:
            return "none"
        spec = self.compiled.reranker
        name = spec.partition(":")[2]
        if name and name not in MODELS:
            raise InputError(
                f"{self.compiled.source} was compiled with reranker {spec!r:.100}, which does not come with typedrag",
                "Name a --reranker yourself, this or another",
            )
        return spec

    def reranker_of(self, spec: str | None, *, as_published: bool) -> str:
        """A reranker's spec, if one is given; else the program's own, or the published one.

        Raises:
            InputError: See `reranker`.
        """
        return spec or (published_reranker(self.name) if as_published and self.compiled is None else self.reranker)

    @property
    def retriever(self) -> str:
        """The spec of the retriever to use by default.

        Raises:
            InputError: If a compiled program names one that there is not, or a server: a stranger's word is no
                reason to send questions anywhere.
        """
        spec = (self.compiled and self.compiled.retriever) or program_class(self.name).searches
        if brings_index(spec):
            raise InputError(f"{self.name} was compiled with retriever {spec!r:.100}", "Name a --retriever yourself")
        check_retriever(spec)
        return spec

    def open_retriever(self, index: Path | str | None = None, spec: str | None = None) -> IndexRetriever | None:
        """Open the program's retriever; None if it needs none.

        Args:
            index: The index folder; by default `default_index()`, and none for a retriever behind HTTP.
            spec: In the place of its own.

        Raises:
            InputError: See `retriever` and `retrieval.open_retriever`.
            RetrievalError: If the index cannot be used.
        """
        if not self.retrieves:
            return None
        return open_retriever(spec or self.retriever, index, self.bm25)

    @property
    def bm25(self) -> dict[BM25Setting, float]:
        """The settings of BM25 to use by default; missing ones are the index's."""
        return dict(self.compiled.bm25) if self.compiled else {}

    def options(self, *, as_published: bool, overrides: Mapping[str, Any] | None = None) -> Options:
        """The program's options: overrides over those that it was compiled with, the published ones, or the defaults.

        Raises:
            InputError: If there is no such option, the program does not read it, or its value does not
                fit; if a compiled program, or one of no paper, is asked for as published; if it was compiled
                with an option that names a model, a file or an LM which does not come with typedrag, unless it
                is overridden: what a compiled program of strangers names is not loaded.
        """
        overrides = overrides or {}
        if self.compiled is None:
            return self._read((Options.as_published(self.name) if as_published else Options()).with_given(overrides))
        if as_published:
            raise InputError(
                f"{self.compiled.source} has the options that it was compiled with, not the published ones",
                "Leave out --as-published",
            )
        held = self.compiled.options.as_defaults(program_class(self.name).reads)
        for name, value in external_options(held):
            if _at(overrides, name) is None:
                reason = f"was compiled with {name} {value!r:.100}, which does not come with typedrag"
                raise InputError(f"{self.compiled.source} {reason}", f"Name {name} yourself, this or another")
        return self._read(held.with_given(overrides))

    def _read(self, options: Options) -> Options:
        program_class(self.name).check_options(options.model_fields_set)
        return options

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that answers depend on, besides options, reranker and index."""
        return {"program": self.name, **({"compiled": self.compiled.fingerprint} if self.compiled else {})}

    def check(self, options: Options) -> None:
        """Raise the `InputError` that `build` would raise, without an index."""
        if self.compiled:
            self.compiled.without_index(options)

    def check_unlabelled(self, options: Options, retriever: str | None) -> None:
        """The same for questions of which no labels are known: those of users, and of a compile.

        Raises:
            InputError: Also if a setting reads labels, which all questions would fail for.
        """
        self.check(options)
        labels = [f"program {self.name}"] if program_class(self.name).reads_labels else list(options.labels)
        if (retriever or self.retriever) == "gold":
            labels.append("retriever=gold")
        if labels:
            raise InputError(
                f"{labels[0]} reads labels of a dataset, which questions have in evaluations alone",
                "Leave it out, or use it in an evaluation",
            )

    def without_index(self, options: Options) -> Program:
        """The program for the sake of those of its modules that search nothing; see `build`."""
        return self.compiled.without_index(options) if self.compiled else uncompiled(self.name, options)

    def build(self, retriever: Retriever | None, reranker: Reranker | None, options: Options) -> Program:
        """Build the program, ready to be called; see `build_program` and `Compiled.build` for the errors."""
        if self.compiled:
            return self.compiled.build(retriever, reranker, options)
        return build_program(self.name, retriever, reranker, options)


def external_options(options: Options) -> list[tuple[str, str]]:
    """The options that name a model, a file or an LM that does not come with typedrag, by their dotted names.

    Example:
        >>> external_options(Options(type_classifier="hub:Lurunchik/nf-cats"))
        [('type_classifier', 'hub:Lurunchik/nf-cats')]
    """
    named = {
        "type_classifier": (options.type_classifier, bool(TYPE_CLASSIFIERS.parse(options.type_classifier).argument)),
        "relevance": (options.relevance, bool(RELEVANCE_FILTERS.parse(options.relevance).argument)),
        "hanrag.revelator_lm": (options.hanrag.revelator_lm, bool(options.hanrag.revelator_lm)),
        "adaptive.classifier": (options.adaptive.classifier, options.adaptive.classifier != "lm"),
    }
    return [(name, value) for name, (value, is_external) in named.items() if is_external]


def without_external_models(options: Options) -> Options:
    """The options without models, files and LMs that do not come with typedrag; the predictors stay the same.

    Example:
        >>> without_external_models(Options(type_classifier="hub:somebody/model")).type_classifier
        'linear'
    """
    external, relevance = dict(external_options(options)), options.relevance
    changes = {
        "type_classifier": "linear" if "type_classifier" in external else options.type_classifier,
        "relevance": relevance if "relevance" not in external else "cascade" if "cascade" in relevance else "score",
        "hanrag": options.hanrag.model_copy(update={"revelator_lm": ""}),
    }
    return options.model_copy(update=changes).as_defaults()


def _at(values: Mapping[str, Any], path: str) -> Any:
    name, _, rest = path.partition(".")
    value = values.get(name)
    return _at(value, rest) if rest and isinstance(value, Mapping) else value


def load_program(
    source: str | Path,
    *,
    index: Path | str | None = None,
    retriever: Retriever | str | None = None,
    reranker: Reranker | None = None,
    options: Mapping[str, Any] | None = None,
) -> Program:
    """Load a compiled program, ready to be called within `typedrag.use_lm`.

    Args:
        source: A folder, `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `runs:/ID/PATH`. Of what
            MLflow keeps only the program's JSON files are read; nothing is unpickled or executed.
        index: Where passages come from; by default `TYPEDRAG_INDEX`, else a sample.
        retriever: In the place of an index, as one that is open or the address of an index server; or a spec of what
            searches the index, in the place of the program's.
        reranker: By default the one that it was compiled with.
        options: Over those that it was compiled with, such as `{"type_classifier": "hub:NAME"}`, which has to
            be named here: see `ProgramSource.options`.

    Raises:
        InputError: If there is no compiled program that this typedrag can load, or an option is refused.
        Unavailable: If the index, the reranker or MLflow's store cannot be used.
    """
    compiled = read_program(source)
    program = ProgramSource(compiled.program, compiled)
    own = program.options(as_published=False, overrides=options)
    if isinstance(retriever, str) or (retriever is None and compiled.retrieves):
        compiled.without_index(own)
        retriever = program.open_retriever(index, retriever)
    return compiled.build(retriever, reranker or open_reranker(program.reranker), own)


def program_source(text: str, *, tracking_uri: str | None = None) -> ProgramSource:
    """The source of a program by its name, or by the place of a compiled one; see `load_program`.

    If a folder has the name of a program, the program is meant.

    Raises:
        InputError: If there is no such program, or none that this typedrag can load.
        Unavailable: If MLflow's store cannot be used.
    """
    if text in program_names():
        return ProgramSource(text)
    if text.startswith(_KEPT_BY_MLFLOW) or "/" in text or os.sep in text or has_part(Path(text), PROGRAM):
        compiled = read_program(text, tracking_uri=tracking_uri)
        return ProgramSource(compiled.program, compiled)
    try:
        return ProgramSource(program_class(text).name)
    except InputError as error:
        raise InputError(error.problem, f"{error.mend}; or name a compiled one: {_FORMS}") from None


def read_program(source: str | Path, *, tracking_uri: str | None = None) -> Compiled:
    """Read a compiled program without building it; see `load_program`.

    Raises:
        InputError: See `Compiled.read`; also if MLflow has no such model or run.
        Unavailable: If MLflow's store cannot be used.
    """
    name = str(source)
    if not name.startswith(_KEPT_BY_MLFLOW):
        return Compiled.read(Path(source), source=name)
    with tempfile.TemporaryDirectory() as folder:
        return Compiled.read(_fetch(name.rstrip("/"), folder, tracking_uri), source=name)


def registered_version(uri: str, *, tracking_uri: str | None = None) -> str:
    """The present version of `models:/NAME@ALIAS` or `models:/NAME/VERSION`; empty for a URI without either.

    Raises:
        InputError: If the registry has no such version.
        Unavailable: If the registry cannot be used.
    """
    name, at, alias = uri.removeprefix(REGISTRY).partition("@")
    model, _, version = name.partition("/")
    if not (at or version.isdecimal()):
        return ""
    mlflow = connect_to_existing(tracking_uri, uri)
    with faults_of_store(redactor_for([]), _OTHER_STORE):
        client = mlflow.MlflowClient()
        try:
            entry = client.get_model_version_by_alias(name, alias) if at else client.get_model_version(model, version)
        except mlflow.MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            raise InputError(f"{uri} cannot be had from MLflow: {_first_line(error)}", f"Name one: {_FORMS}") from None
    return str(entry.version)


def load_type_classifier(source: str | Path) -> tuple[dspy.Module, Options]:
    """Load the type classifier of a compiled program, ready to be called, with the program's options.

    Raises:
        InputError: See `read_program`; also if the program has no type classifier.
        Unavailable: If MLflow's store cannot be used.
    """
    compiled = read_program(source)
    program = compiled.without_index(ProgramSource(compiled.program, compiled).options(as_published=False))
    if not isinstance(program, TypedRAG):
        raise InputError(f"{source} is a compiled {program.name}, which has no type classifier", "Name a typed_rag")
    return program.classifier, program.options


def _fetch(uri: str, folder: str, tracking_uri: str | None) -> Path:
    mlflow = connect_to_existing(tracking_uri, uri)
    with faults_of_store(redactor_for([]), _OTHER_STORE):
        try:
            return Path(mlflow.artifacts.download_artifacts(_folder_of(uri), dst_path=folder))
        except mlflow.MlflowException as error:
            mend = f"Compiled programs are {_FORMS}"
            raise InputError(f"{uri} cannot be had from MLflow: {_first_line(error)}", mend) from None


def _folder_of(uri: str) -> str:
    """The URI of the program's folder: within a logged model, else the given place in a run."""
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        model = mlflow.models.get_model_info(uri)
    except MlflowException:
        if uri.startswith("runs:/"):
            return uri
        raise
    artifacts = model.flavors.get("python_function", {}).get("artifacts") or {}
    path = PurePosixPath(str((artifacts.get(ARTIFACT) or {}).get("path") or "/"))
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"{uri} is a model, but no compiled program", "Name one that typedrag compile has registered")
    return f"{uri}/{path}"


def _first_line(error: Exception) -> str:
    return redactor_for([])(first_line(error))
