"""The LINKAGE authors' JSON files: questions with passages graded by people."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dspy
from pydantic import AliasChoices, Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example, id_of
from typedrag.datasets.hub import download
from typedrag.datasets.reading import Entry, Id, Layout, Text, files_of, members, misfit, parse, read_json
from typedrag.records import Reference

HOME = (
    "https://raw.githubusercontent.com/babyyang525/LINKAGE-Listwise-NFQA-Evaluation/"
    "097fdc5f0d0a589570f3737c098e063a0eeae5bf/dataset"
)


class _Passage(Layout):
    id: Id = Field(validation_alias=AliasChoices("doc_id", "docid"))
    passage: Text
    label: int


@source(
    "antique",
    about="500 questions from Yahoo! Answers, each with about 20 answers labelled 1 (off topic) to 4 (convincing)",
    licence="none stated; content of Yahoo! Answers, for research (Hashemi et al. 2020; Yang et al. 2024)",
    home="https://github.com/babyyang525/LINKAGE-Listwise-NFQA-Evaluation",
)
def load_antique(path: Path | None = None, passage_prefix: str = "antique-") -> Dataset:
    """Read ANTIQUE as the LINKAGE authors prepared it.

    References are the passages with their labels, best first. `passage_ids` are the passages of label 3
    (reasonable) and more.

    Args:
        path: The authors' file ANTIQUE.json (also .gz), or its folder.
        passage_prefix: The prefix of passage ids in the corpus, which the file's ids lack.

    Raises:
        InputError: If a row does not fit, or there is no such file.
        Unavailable: If its home cannot be reached.
    """
    return _load("antique", path, "ANTIQUE.json", least=3, prefix=passage_prefix)


@source(
    "trec-dl-nf",
    about="non-factoid questions of TREC Deep Learning with passages labelled 0 (irrelevant) to 3 (perfect)",
    licence="MS MARCO: non-commercial research only",
    home="https://github.com/babyyang525/LINKAGE-Listwise-NFQA-Evaluation",
)
def load_trec_dl_nf(path: Path | None = None, passage_prefix: str = "msmarco-") -> Dataset:
    """Read TREC-DL-NF as the LINKAGE authors prepared it; like `load_antique`, but on another scale.

    `passage_ids` are the passages of label 2 (highly relevant) and more, which TREC counts as relevant.
    """
    return _load("trec-dl-nf", path, "TREC-DL-NF.json", least=2, prefix=passage_prefix)


def _load(name: str, path: Path | None, file_name: str, *, least: int, prefix: str) -> Dataset:
    if path:
        [(_, file)] = files_of(path, {name: (file_name, file_name.lower())})
    else:
        file = download(f"{HOME}/{file_name}")
    to_example = partial(_example, least=least, prefix=prefix)
    return build_dataset(name, _questions(file), to_example, source=str(path or f"{HOME}/{file_name}"))


def _questions(file: Path) -> Iterator[Entry]:
    questions = read_json(file)
    if not isinstance(questions, dict):
        raise misfit(str(file), "it is no JSON object of questions")
    for question, passages in questions.items():
        yield Entry((question, passages), f"{file}, question '{question}'")


def _example(entry: Entry, *, least: int, prefix: str) -> dspy.Example | str:
    question, value = entry.value
    passages = [parse(_Passage, member) for member in members(entry._replace(value=value))]
    passages.sort(key=lambda passage: -passage.label)
    needed = [passage for passage in passages if passage.label >= least]
    if not question.strip() or not passages:
        raise misfit(entry.place, "it has no question or no passage")
    return example(
        id=id_of(question),
        question=question,
        references=tuple(Reference(p.passage, p.label) for p in passages),
        passage_ids=tuple(f"{prefix}{p.id}" for p in needed),
        passage_texts=tuple(p.passage for p in needed),
    )
