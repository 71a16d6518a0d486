"""`typedrag doctor` and `typedrag models`: what is installed, reachable and usable on this machine."""

import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import click

from typedrag.cli import options
from typedrag.cli.terminal import echo, print_json, say
from typedrag.core.errors import TypedRAGError
from typedrag.core.extras import require


class Check(NamedTuple):
    """A check: its name, whether it passed, what was found or how to fix it, and whether a first answer needs it."""

    name: str
    works: bool
    finding: str
    needed: bool = False


@options.command(name="doctor")
def command(ctx: click.Context, *, as_json: options.Json = False) -> None:
    """Check LMs, Java, models and index. Fails if no question can be answered here."""
    checks = list(_run_checks())
    if as_json:
        print_json(*(c._asdict() for c in checks))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok" if check.works else ("MISSING" if check.needed else "-")
            echo(f"{mark:8} {check.name:{width}} {check.finding}")
    if not all(c.works for c in checks if c.needed):
        ctx.exit(1)


def _run_checks() -> Iterator[Check]:
    from typedrag.lms.models import MODELS

    yield Check("Python", True, platform.python_version())
    for package in ("typedrag", "dspy"):
        try:
            yield Check(package, True, version(package))
        except PackageNotFoundError:
            yield Check(package, False, "not installed. Install typedrag again")
    yield _check("Java", _find_java, needed=True)
    yield _check("Lucene", _find_lucene, needed=True)
    yield _check("index", _open_index, needed=True)
    yield _check("type classifier", _classify, needed=True)
    yield _check("LM", _open_lm, needed=True)
    yield _check("embedded engine", _find_engine)
    for model in MODELS.values():
        finding = str(model.path) if model.present else f"typedrag models fetch {model.name}  ({model.megabytes} MB)"
        yield Check(f"model {model.name}", model.present, finding)
    yield _check_vllm()
    keys = [name for name in os.environ if name.endswith("_API_KEY")]
    yield Check("API keys", bool(keys), ", ".join(sorted(keys)) or "none set; hosted LMs need one")


def _check(name: str, look: Callable[[], str], *, needed: bool = False) -> Check:
    try:
        return Check(name, True, look(), needed)
    except TypedRAGError as error:
        return Check(name, False, str(error), needed)


def _find_java() -> str:
    from typedrag.retrieval.index.lucene import find_java

    java = find_java()
    return f"{java.version} of {java.source} ({java.home})"


def _find_lucene() -> str:
    from typedrag.retrieval.index.lucene import find_jar, java_class

    java_class("io.anserini.search.SimpleSearcher")
    return find_jar().name


def _open_index() -> str:
    from typedrag.retrieval import BM25Retriever
    from typedrag.retrieval.opening import default_index

    retriever = BM25Retriever(default_index())
    return f"{retriever.index} ({retriever.manifest.passages:,} passages in language {retriever.manifest.language})"


def _classify() -> str:
    from typedrag.programs.typed_rag.type_classifiers import WEIGHTS, LinearTypeClassifier

    LinearTypeClassifier()(question="Why is the sky blue?")
    return WEIGHTS.name


def _open_lm() -> str:
    from typedrag.lms.lm import DEFAULT_EMBEDDED, locate_embedded, open_lm
    from typedrag.lms.specs import KINDS, default_spec

    kind, _, name = default_spec().partition(":")
    if kind == "embedded":
        _find_engine()
        return f"embedded: {locate_embedded(name or DEFAULT_EMBEDDED).name}"
    model = open_lm().model
    if kind not in KINDS:
        import litellm

        missing = [key for key in litellm.validate_environment(model)["missing_keys"] if key.endswith("_KEY")]
        if missing:  # others that it lists, such as an address, have defaults
            raise TypedRAGError(f"{model} wants {' and '.join(missing)} in the environment", "Set its key")
    return f"{model} can be opened"


def _find_engine() -> str:
    require("xllamacpp")
    return f"xllamacpp {version('xllamacpp')}"


def _check_vllm() -> Check:
    from typedrag.lms.vllm import find_vllm, served_models

    server, key = os.environ.get("TYPEDRAG_API_BASE"), os.environ.get("TYPEDRAG_API_KEY") or "EMPTY"
    if not server:
        started = f"{command} starts one" if (command := find_vllm()) else "no command vllm to start one"
        return Check("vLLM server", command is not None, f"TYPEDRAG_API_BASE is not set; {started}")
    return _check("vLLM server", lambda: f"{server} serves {', '.join(served_models(server, key, timeout=5))}")


@click.group()
def models() -> None:
    """List and fetch small models."""


@options.command(group=models, name="list")
def list_models(*, as_json: options.Json = False) -> None:
    """List all models, with size, licence, and whether they are on this machine."""
    from typedrag.lms.models import MODELS

    for m in MODELS.values():
        if as_json:
            facts = {name: getattr(m, name) for name in ("name", "megabytes", "licence", "present", "file", "sha256")}
            print_json({**facts, "hub": m.hub or None, "packages": list(m.packages), "purpose": m.purpose})
        else:
            here = "here" if m.present else "not fetched"
            echo(f"{m.name:20} {m.megabytes:>5} MB  {m.licence:11} {here:12} {m.purpose}")


@options.command(group=models)
def fetch(name: str) -> None:
    """Download the model NAME and print its path."""
    from typedrag.lms.models import fetch as fetch_model
    from typedrag.lms.models import find_model

    model = find_model(name)
    if not model.present:
        say(f"fetching {name} ({model.megabytes} MB, {model.licence}) …")
    echo(str(fetch_model(name)))
