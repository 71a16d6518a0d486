"""The index that is searched where none is named."""

from __future__ import annotations

import os
from pathlib import Path

from typedrag.datasets.sample import PASSAGES
from typedrag.files.digests import hash_files
from typedrag.files.locks import wait_for_lock
from typedrag.lms.models import cache_dir
from typedrag.retrieval.index.bm25_part import has_bm25
from typedrag.retrieval.index.building import build_index
from typedrag.retrieval.index.generations import FORMAT
from typedrag.retrieval.index.sources import read_passages


def default_index() -> Path:
    """The default index: `TYPEDRAG_INDEX`, else one of the sample corpus.

    The sample's index is built into the cache folder when it is first needed.
    """
    if configured := os.environ.get("TYPEDRAG_INDEX"):
        return Path(configured)
    index = cache_dir() / "indexes" / f"sample-{hash_files(PASSAGES)[:8]}-{FORMAT}"
    if not has_bm25(index):
        index.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(index):
            if not has_bm25(index):  # no other process was first
                build_index(read_passages([PASSAGES]), index, sources=["sample"], force=True)
    return index
