"""Small files in the layouts of real datasets, and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from typedrag.datasets import load_dataset
from typedrag.errors import InputError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def write_jsonl(path: Path, *rows) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_json(path: Path, value) -> Path:
    return write(path, json.dumps(value))


def refusal(name: str, path: Path | None = None, **options) -> str:
    """What is said when a dataset cannot be loaded."""
    with pytest.raises(InputError) as caught:
        load_dataset(name, path, **options)
    return str(caught.value)
