"""Datasets at their public homes, read through Hugging Face's `datasets` and cached by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typedrag.core.errors import Unavailable
from typedrag.core.extras import require
from typedrag.datasets.reading import Entry, choose_subsets


def hub_rows(
    name: str,
    splits: Mapping[str, str],
    *,
    config: str | None = None,
    subset: str | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Entry]:
    """Yield the rows of a dataset on the Hugging Face hub.

    Args:
        splits: The hub's name of the split for each subset.
        config: One of the configurations that the hub lists for the dataset.
        subset: One of the subsets, or several separated by commas; None takes all.
        columns: The columns to read, if rows have much besides.
    """
    for part in choose_subsets(list(splits), subset):
        place = f"{name} ({splits[part]})"
        for number, row in enumerate(_split(name, config, splits[part], columns), 1):
            yield Entry(row, f"{place}, row {number}", part)


def download(url: str, *, extract: bool = False) -> Path:
    """A file from the web, or the folder unpacked from it, in the cache."""
    require("datasets")
    import datasets

    manager = datasets.DownloadManager()
    try:
        return Path(manager.download_and_extract(url) if extract else manager.download(url))
    except Exception as error:  # the kind of error depends on the protocol
        raise _unreachable(url, error) from error


def cache_folder() -> Path:
    """The cache folder of fetched files."""
    require("datasets")
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE)


def _split(name: str, config: str | None, split: str, columns: Sequence[str] | None) -> Any:
    require("datasets")
    import datasets

    try:
        rows = datasets.load_dataset(name, config, split=split)
        return rows.select_columns(list(columns)) if columns else rows
    except Exception as error:  # for many causes: no connection, no such dataset, config, split or column
        raise _unreachable(f"dataset {name} of the Hugging Face hub", error) from error


def _unreachable(what: str, error: Exception) -> Unavailable:
    message = str(error).partition("\n")[0]
    reason = f": {message}" if message and message != what else ""
    return Unavailable(f"{what} cannot be fetched{reason}", "Check the connection, or name a copy: --path")
