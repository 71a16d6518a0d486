"""`typedrag doctor`: check what is installed, reachable and usable on this machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import click

from typedrag.core.errors import TypedRAGError
from typedrag.core.extras import require


class Check(NamedTuple):
    """A check: its name, whether it passed, and what was found or how to mend it.

    Attributes:
        needed: Whether a first answer needs it.
    """

    name: str
    works: bool
    finding: str
    needed: bool = False


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check LMs, Java, models and index. Fails if no question can be answered here."""
    checks = list(_run_checks())
    if as_json:
        click.echo(json.dumps([c._asdict() for c in checks], indent=1))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok" if check.works else ("MISSING" if check.needed else "-")
            click.echo(f"{mark:8} {check.name:{width}} {check.finding}")
    if not all(c.works for c in checks if c.needed):
        ctx.exit(1)


def _run_checks() -> Iterator[Check]:
    yield Check("Python", True, platform.python_version())
    yield from (_check(name, partial(_version, name)) for name in ("typedrag", "dspy"))
    yield _check("Java", _java, needed=True)
    yield _check("Lucene", _lucene, needed=True)
    yield _check("index", _index, needed=True)
    yield _check("type classifier", _classifier, needed=True)
    yield _check("LM", _default_lm, needed=True)
    yield _check("embedded engine", _engine)
    yield from _models()
    yield _vllm()
    keys = [name for name in os.environ if name.endswith("_API_KEY")]
    yield Check("API keys", bool(keys), ", ".join(sorted(keys)) or "none set; hosted LMs need one")


def _check(name: str, look: Callable[[], str], *, needed: bool = False) -> Check:
    try:
        return Check(name, True, look(), needed)
    except TypedRAGError as error:
        return Check(name, False, str(error), needed)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise TypedRAGError("not installed", "Install typedrag again") from None


def _java() -> str:
    from typedrag.retrieval.index.lucene import find_java

    java = find_java()
    return f"{java.version} of {java.source} ({java.home})"


def _lucene() -> str:
    from typedrag.retrieval.index.lucene import find_jar, java_class

    java_class("io.anserini.search.SimpleSearcher")
    return find_jar().name


def _index() -> str:
    from typedrag.retrieval import BM25Retriever
    from typedrag.retrieval.opening import default_index

    retriever = BM25Retriever(default_index())
    return f"{retriever.index} ({retriever.manifest.passages:,} passages in language {retriever.manifest.language})"


def _classifier() -> str:
    from typedrag.programs.typed_rag.type_classifiers import WEIGHTS, LinearTypeClassifier

    LinearTypeClassifier()(question="Why is the sky blue?")
    return WEIGHTS.name


def _default_lm() -> str:
    from typedrag.lms.lm import DEFAULT_EMBEDDED, default_spec, locate_embedded, open_lm
    from typedrag.lms.vllm import KINDS

    kind, _, name = default_spec().partition(":")
    if kind != "embedded":
        lm = open_lm()
        if kind not in KINDS:
            _check_key(lm.model)
        return f"{lm.model} can be opened"
    _engine()
    return f"embedded: {locate_embedded(name or DEFAULT_EMBEDDED).name}"


def _check_key(model: str) -> None:
    import litellm

    missing = [key for key in litellm.validate_environment(model)["missing_keys"] if key.endswith("_KEY")]
    if missing:  # others that it lists, such as an address, have defaults
        raise TypedRAGError(f"{model} wants {' and '.join(missing)} in the environment", "Set its key")


def _engine() -> str:
    require("xllamacpp")
    return f"xllamacpp {version('xllamacpp')}"


def _models() -> Iterator[Check]:
    from typedrag.lms.models import MODELS

    for model in MODELS.values():
        finding = str(model.path) if model.present else f"typedrag models fetch {model.name}  ({model.megabytes} MB)"
        yield Check(f"model {model.name}", model.present, finding)


def _vllm() -> Check:
    from typedrag.lms.vllm import find_vllm, served_models

    server, key = os.environ.get("TYPEDRAG_API_BASE"), os.environ.get("TYPEDRAG_API_KEY") or "EMPTY"
    if not server:
        started = f"{command} starts one" if (command := find_vllm()) else "no command vllm to start one"
        return Check("vLLM server", command is not None, f"TYPEDRAG_API_BASE is not set; {started}")
    return _check("vLLM server", lambda: f"{server} serves {', '.join(served_models(server, key, timeout=5))}")
