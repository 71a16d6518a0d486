"""Programs by a name, the folder of a compiled program, or a model or run of MLflow."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import dspy

from typedrag.core.errors import InputError, first_line
from typedrag.core.redaction import make_redactor
from typedrag.experiments.tracking.tracker import connect_to_existing, faults_of_store
from typedrag.programs import Options, Program, TypedRAG, loading
from typedrag.programs.compiled import Compiled
from typedrag.programs.loading import FORMS, ProgramSource
from typedrag.retrieval import Reranker, Retriever, open_reranker

ARTIFACT = "program"  # what a registered model calls the folder of its compiled program
_IN_REGISTRY = "models:/"
_IN_MLFLOW = (_IN_REGISTRY, "runs:/")


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
    own = program.options(overrides=options)
    if isinstance(retriever, str) or (retriever is None and compiled.retrieves):
        compiled.without_index(own)
        retriever = program.open_retriever(index, retriever)
    return compiled.build(retriever, reranker or open_reranker(program.reranker), own)


def program_source(text: str, *, tracking_uri: str | None = None) -> ProgramSource:
    """The source of a program by its name, or by the place of a compiled one; see `load_program`."""
    if not text.startswith(_IN_MLFLOW):
        return loading.program_source(text)
    compiled = read_program(text, tracking_uri=tracking_uri)
    return ProgramSource(compiled.program, compiled)


def read_program(source: str | Path, *, tracking_uri: str | None = None) -> Compiled:
    """Read a compiled program without building it; see `load_program`."""
    name = str(source)
    if not name.rstrip("/").startswith(_IN_MLFLOW):
        return Compiled.read(Path(source), source=name)
    with tempfile.TemporaryDirectory() as folder:
        return Compiled.read(_fetch(name.rstrip("/"), folder, tracking_uri), source=name)


def registered_version(uri: str, *, tracking_uri: str | None = None) -> str:
    """The present version of `models:/NAME@ALIAS` or `models:/NAME/VERSION`; empty for a URI without either."""
    name, at, alias = uri.removeprefix(_IN_REGISTRY).partition("@")
    model, _, version = name.partition("/")
    if not (at or version.isdecimal()):
        return ""
    with _mlflow(uri, tracking_uri, f"Name one: {FORMS}") as mlflow:
        client = mlflow.MlflowClient()
        entry = client.get_model_version_by_alias(name, alias) if at else client.get_model_version(model, version)
    return str(entry.version)


def load_type_classifier(source: str | Path) -> tuple[dspy.Module, Options]:
    """Load the type classifier of a compiled program, ready to be called, with the program's options."""
    compiled = read_program(source)
    program = compiled.without_index(ProgramSource(compiled.program, compiled).options())
    if not isinstance(program, TypedRAG):
        raise InputError(f"{source} is a compiled {program.name}, which has no type classifier", "Name a typed_rag")
    return program.classifier, program.options


def _fetch(uri: str, folder: str, tracking_uri: str | None) -> Path:
    """Download the program's folder: within a logged model, else the given place in a run."""
    with _mlflow(uri, tracking_uri, f"Compiled programs are {FORMS}") as mlflow:
        try:
            flavors = mlflow.models.get_model_info(uri).flavors
        except mlflow.MlflowException:
            if not uri.startswith("runs:/"):
                raise
            return Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        artifacts = flavors.get("python_function", {}).get("artifacts") or {}
        path = PurePosixPath(str((artifacts.get(ARTIFACT) or {}).get("path") or "/"))
        if path.is_absolute() or ".." in path.parts:
            hint = "Name one that typedrag compile has registered"
            raise InputError(f"{uri} is a model, but no compiled program", hint)
        return Path(mlflow.artifacts.download_artifacts(f"{uri}/{path}", dst_path=folder))


@contextmanager
def _mlflow(uri: str, tracking_uri: str | None, hint: str) -> Iterator[Any]:
    mlflow = connect_to_existing(tracking_uri, uri)
    with faults_of_store(redact := make_redactor([]), "Set MLFLOW_TRACKING_URI to another"):
        try:
            yield mlflow
        except mlflow.MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):  # the store's own fault
                raise
            raise InputError(f"{uri} cannot be had from MLflow: {redact(first_line(error))}", hint) from None
