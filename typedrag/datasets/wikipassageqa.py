"""WikiPassageQA: questions on Wikipedia articles with the passages that answer them (Cohen et al., 2018)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dspy

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example
from typedrag.datasets.hub import download
from typedrag.datasets.reading import Entry, Id, Layout, Text, misfit, parse, read_json, rows_of
from typedrag.errors import InputError
from typedrag.records import Reference

FILES = {part: (f"{part}.tsv",) for part in ("train", "dev", "test")}
PASSAGES = "document_passages.json"
HOME = "https://ciir.cs.umass.edu/downloads/wikipassageqa/WikiPassageQA.zip"


class _Row(Layout):
    QID: Id
    Question: Text
    DocumentID: Id
    RelevantPassages: Text


@source(
    "wikipassageqa",
    about="about 4,200 non-factoid questions on 863 Wikipedia articles, with the passages that answer them",
    licence="none stated; texts of Wikipedia: CC BY-SA",
    home="https://ciir.cs.umass.edu/downloads/wikipassageqa/",
)
def load_wikipassageqa(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read WikiPassageQA.

    `passage_ids` are the passages that people found to answer the question, as `DOCUMENT_PASSAGE` numbers.
    The only reference is their texts, joined, which RichRAG uses as the long-form
    answer (appendix A). `subset` is the authors' own split.

    Args:
        path: The unpacked folder, or one of its .tsv files, with document_passages.json beside it.
        subset: train, dev or test, or several separated by commas; None takes all there are.

    Raises:
        InputError: If a row does not fit, or there is no such file or subset.
        Unavailable: If its home cannot be reached.
    """
    folder = path or next((p.parent for p in download(HOME, extract=True).rglob(PASSAGES)), Path(PASSAGES))
    passages = (folder if folder.is_dir() else folder.parent) / PASSAGES
    if not passages.exists():
        raise InputError(f"there is no {passages}", "It belongs to WikiPassageQA and holds the texts of the passages")
    to_example = partial(_example, documents=read_json(passages), file=passages.name)
    return build_dataset("wikipassageqa", rows_of(folder, FILES, subset), to_example, source=str(path or HOME))


def _example(entry: Entry, *, documents: dict[str, dict[str, str]], file: str) -> dspy.Example:
    row = parse(_Row, entry)
    numbers = [number.strip() for number in row.RelevantPassages.split(",")]
    passages = documents.get(row.DocumentID, {})
    for number in numbers:
        if not passages.get(number):
            raise misfit(entry.place, f"{file} has no passage '{number}' of document '{row.DocumentID}'")
    texts = tuple(passages[number] for number in numbers)
    return example(
        id=f"{entry.subset}-{row.QID}",
        question=row.Question,
        subset=entry.subset,
        references=(Reference(" ".join(texts), 1),),
        passage_ids=tuple(f"{row.DocumentID}_{number}" for number in numbers),
        passage_texts=texts,
    )
