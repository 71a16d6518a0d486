"""From the command line's names to ready objects."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import click

from typedrag.errors import InputError
from typedrag.files.digests import digest_of
from typedrag.files.locks import alone_at
from typedrag.redaction import without_keys


def default_index() -> Path:
    """The index to use where none is named: `TYPEDRAG_INDEX`, else one of the sample corpus.

    The latter is built into the cache folder when it is first needed.
    """
    if configured := os.environ.get("TYPEDRAG_INDEX"):
        return Path(configured)
    from typedrag.datasets.sample import PASSAGES
    from typedrag.lms.models import cache_dir
    from typedrag.retrieval import build_index, read_passages
    from typedrag.retrieval.index.index import FORMAT

    digest = digest_of(PASSAGES)[:8]
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


def claim(out: Path) -> None:
    """Keep other processes from the file that this command is to write, until it ends.

    Raises:
        InputError: If another process is writing it.
    """
    context = click.get_current_context()
    claimed: set[Path] = context.meta.setdefault("typedrag.claimed", set())
    if out not in claimed:
        context.with_resource(alone_at(out))
        claimed.add(out)


def claim_file(out: Path) -> Path:
    """The file that `--out` names, claimed: refused before hours are spent if it could not be written.

    Raises:
        InputError: If it is no file in a folder that exists, or another process is writing it.
    """
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise InputError(f"--out {out} cannot be written", "Name a file in a folder that exists")
    claim(out)
    return out


def say(message: str) -> None:
    """A notice on stderr."""
    click.echo(without_keys(message), err=True)
