"""From the command line's names to ready objects."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.errors import InputError

if TYPE_CHECKING:
    from typedrag.programs import Options


def default_index() -> Path:
    """The index to use where none is named: `TYPEDRAG_INDEX`, else one of the sample corpus.

    The latter is built into the cache folder when it is first needed.
    """
    if configured := os.environ.get("TYPEDRAG_INDEX"):
        return Path(configured)
    from typedrag.datasets.sample import PASSAGES
    from typedrag.models import cache_dir
    from typedrag.retrieval import build_index, read_passages
    from typedrag.retrieval.index import FORMAT

    digest = hashlib.sha256(PASSAGES.read_bytes()).hexdigest()[:8]
    index = cache_dir() / "indexes" / f"sample-{digest}-{FORMAT}"
    if not (index / "manifest.json").is_file():
        index.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=index.parent) as tmp:
            build_index(read_passages([PASSAGES]), Path(tmp, "index"), sources=["sample"])
            shutil.rmtree(index, ignore_errors=True)
            try:
                Path(tmp, "index").rename(index)
            except OSError:
                if not (index / "manifest.json").is_file():  # else another process was first
                    raise
    return index


def read_options(assignments: tuple[str, ...], base: Options, **given: Any) -> Options:
    """Options from `name=value` and `group.name=value`, over others.

    Raises:
        InputError: If there is no such option or its value does not fit.
    """
    from pydantic import ValidationError

    from typedrag.programs import Options

    values = base.model_dump()
    values |= {name: value for name, value in given.items() if value is not None}
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        group, _, name = path.rpartition(".")
        holder = values.get(group) if group else values
        if not equals or not isinstance(holder, dict) or name not in holder:
            raise InputError(
                f"'{assignment}' sets no option",
                f"Options: {', '.join(_option_names(Options().model_dump()))}",
            )
        holder[name] = value
    try:
        return Options.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(part) for part in first["loc"])
        raise InputError(f"option {option} cannot be '{first['input']}'", first["msg"]) from None


def _option_names(values: dict[str, Any]) -> list[str]:
    return [
        f"{name}.{inner}" if inner else name
        for name, value in values.items()
        for inner in (value if isinstance(value, dict) else [""])
    ]


def say(message: str) -> None:
    """A notice on stderr."""
    click.echo(message, err=True)
