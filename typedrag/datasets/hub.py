"""Datasets at their public homes, read through Hugging Face's `datasets` and kept in its cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typedrag.datasets.reading import Entry, subsets_of
from typedrag.errors import Unavailable
from typedrag.extras import require


def hub_rows(
    name: str,
    splits: Mapping[str, str],
    *,
    config: str | None = None,
    subset: str | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Entry]:
    """The rows of a dataset of the Hugging Face hub.

    Args:
        splits: For each subset the hub's name of the split that is it.
        config: Of those the hub lists for the dataset.
        subset: One of them, or several with commas between; None takes all.
        columns: Those that are read, where rows carry much else.

    Raises:
        InputError: If there is no such subset.
        Unavailable: If the hub cannot be reached or has it no more.
    """
    for part in subsets_of(list(splits), subset):
        place = f"{name} ({splits[part]})"
        for number, row in enumerate(_split(name, config, splits[part], columns), 1):
            yield Entry(row, f"{place}, row {number}", part)


def download(url: str, *, extract: bool = False) -> Path:
    """A file of the web, or the folder it is an archive of, as kept in the cache.

    Raises:
        Unavailable: If it cannot be reached.
    """
    require("datasets")
    import datasets

    manager = datasets.DownloadManager()
    try:
        return Path(manager.download_and_extract(url) if extract else manager.download(url))
    except Exception as error:  # of many kinds, by protocol
        raise _unreachable(url, error) from error


def cache_folder() -> Path:
    """Where what is fetched is kept."""
    require("datasets")
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE)


def _split(name: str, config: str | None, split: str, columns: Sequence[str] | None) -> Any:
    require("datasets")
    import datasets

    try:
        rows = datasets.load_dataset(name, config, split=split)
        return rows.select_columns(list(columns)) if columns else rows
    except Exception as error:  # of many kinds: no connection, no such dataset, config, split or column
        raise _unreachable(f"dataset {name} of the Hugging Face hub", error) from error


def _unreachable(what: str, error: Exception) -> Unavailable:
    said = str(error).partition("\n")[0]
    reason = f": {said}" if said and said != what else ""
    return Unavailable(f"{what} cannot be fetched{reason}", "Check the connection, or name a copy: --path")
