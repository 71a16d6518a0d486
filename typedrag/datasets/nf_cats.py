"""NF-CATS: questions with the category of answer they ask for (Bolotova et al., 2022)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import dspy

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example, id_of
from typedrag.datasets.hub import download
from typedrag.datasets.reading import Entry, Layout, Text, TypeName, files_of, parse, read_rows, subsets_of

FILES = {name: (f"{name}.csv",) for name in ("train", "valid", "test")}
HOME = "https://raw.githubusercontent.com/Lurunchik/NF-CATS/1b8c3b83337dfe0889245e817f1ba104e69939bd/nfcats/data"


class _Row(Layout):
    question: Text
    category: TypeName
    annotated_by: str = ""


@source(
    "nf-cats",
    about="about 12,000 questions labelled with one of eight categories, by people and by clustering",
    licence="MIT",
    home="https://github.com/Lurunchik/NF-CATS",
)
def load_nf_cats(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read NF-CATS.

    `question_type` is the label, `subset` the authors' own split, and `annotated_by` names the
    annotators: authors, mturk, or unsupervised.

    Args:
        path: A file train.csv, valid.csv or test.csv, or their folder.
        subset: train, valid or test, or several separated by commas; None takes all there are.

    Raises:
        InputError: If a row does not fit, or there is no such file or subset.
        Unavailable: If its home cannot be reached.
    """
    if path:
        files = files_of(path, FILES, subset)
    else:  # read file by file: the cache's file names do not tell their kind
        files = [(part, download(f"{HOME}/{FILES[part][0]}")) for part in subsets_of(list(FILES), subset)]
    entries = chain.from_iterable(read_rows(file, part, kind=".csv") for part, file in files)
    return build_dataset("nf-cats", entries, _example, source=str(path or HOME))


def _example(entry: Entry) -> dspy.Example:
    row = parse(_Row, entry)
    return example(
        id=id_of(entry.subset, row.question),
        question=row.question,
        question_type=row.category,
        subset=entry.subset,
        annotated_by=row.annotated_by,
    )
