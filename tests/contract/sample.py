"""The sample corpus as an index of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import build_index, read_passages


@contextmanager
def sample_index() -> Iterator[Path]:
    """The folder of an index that is there within."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        build_index(read_passages([PASSAGES]), index, sources=["sample"])
        yield index
