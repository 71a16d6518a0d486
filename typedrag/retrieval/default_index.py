"""The index that is searched where none is named."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from typedrag.datasets.sample import PASSAGES
from typedrag.files.digests import digest_of
from typedrag.lms.models import cache_dir
from typedrag.retrieval.index.index import FORMAT, build_index
from typedrag.retrieval.index.sources import read_passages


def default_index() -> Path:
    """The default index: `TYPEDRAG_INDEX`, else one of the sample corpus.

    The sample's index is built into the cache folder when it is first needed.
    """
    if configured := os.environ.get("TYPEDRAG_INDEX"):
        return Path(configured)
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
                if not (index / "manifest.json").is_file():  # otherwise another process was first
                    raise
    return index
