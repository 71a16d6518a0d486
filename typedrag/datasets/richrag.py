"""WikiPassageQA and WikiAsp with sub-aspects and sub-answers, as RichRAG's authors publish them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import dspy
from pydantic import BeforeValidator, Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example, id_of
from typedrag.datasets.reading import Entry, Layout, Text, misfit, parse, read_rows, subsets_of
from typedrag.errors import InputError
from typedrag.records import Reference

PARTS = ("train", "dev", "test")
HOME = "https://huggingface.co/datasets/ShootingWong/RichRAG-dataset-ckpt"


def _texts(value: object) -> object:
    """The texts of an answer: one, several, or several objects that hold one each."""
    listed = value if isinstance(value, list) else [value]
    return [member.get("answer") if isinstance(member, dict) else member for member in listed]


_Texts = Annotated[list[Text], BeforeValidator(_texts), Field(min_length=1)]


class _Row(Layout):
    question: Text
    answers: _Texts | None = None
    answer: _Texts | None = None
    subqs: Annotated[list[Text], Field(min_length=1)]
    subas: Annotated[list[Text], Field(min_length=1)]


@source(
    "richrag",
    about="questions with sub-aspects and sub-answers as RichRAG's authors publish them, of WikiPassageQA or WikiAsp",
    licence="none stated; texts of Wikipedia: CC BY-SA",
    home=HOME,
)
def load_richrag(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read a data file of RichRAG's authors, as their code reads it: `wikipassageqa_…_test.…jsonl` and the like.

    `aspects` are the sub-aspects, without the question that some files write before each, and `sub_answers` the
    answers to them. The only reference is the whole answer. `subset` is the part that a file's name says.

    Args:
        path: A .jsonl file whose name holds train, dev or test, or a folder with at most one such file for each.
        subset: train, dev or test, or several separated by commas; None takes all there are.

    Raises:
        InputError: If a row does not fit, no path is given, or it is not plain which file is which part.
    """
    if path is None:
        raise InputError("dataset 'richrag' is read from files of its authors", f"Fetch them from {HOME}: --path")
    return build_dataset("richrag", _rows(path, subsets_of(PARTS, subset)), _example, source=str(path))


def _rows(path: Path, subsets: list[str]) -> Iterator[Entry]:
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    for part in subsets:
        named = [file for file in files if part in file.name]
        if len(named) > 1:
            raise InputError(
                f"{path} holds {len(named)} files of part '{part}', such as {named[0].name}", "Name one file: --path"
            )
        for file in named:
            yield from read_rows(file, part)


def _example(entry: Entry) -> dspy.Example:
    row = parse(_Row, entry)
    answers = row.answers or row.answer
    if not answers:
        raise misfit(entry.place, "it has no answer")
    if len(row.subqs) != len(row.subas):
        raise misfit(entry.place, f"it has {len(row.subqs)} sub-aspects and {len(row.subas)} sub-answers")
    return example(
        id=id_of(entry.subset, row.question, *answers),
        question=row.question,
        subset=entry.subset,
        references=(Reference("\n".join(answers), 1),),
        aspects=tuple(sub.removeprefix(row.question).lstrip(" :") or sub for sub in row.subqs),
        sub_answers=tuple(row.subas),
    )
