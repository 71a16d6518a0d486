"""The passages of questions' contexts, as MuSiQue, HotpotQA and 2WikiMultihopQA publish them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from typedrag.datasets.examples import id_of
from typedrag.datasets.reading import Entry, Layout, misfit, parse, read_rows
from typedrag.errors import InputError
from typedrag.records import Passage
from typedrag.retrieval.index.rows import FieldMap, passage_of
from typedrag.retrieval.index.sources import Placed, Problems

_NO_CONTEXTS = "it has neither paragraphs, as MuSiQue has, nor a context, as HotpotQA and 2WikiMultihopQA have"


class _Paragraph(Layout):
    title: str
    paragraph_text: str


class _Question(Layout):
    paragraphs: list[_Paragraph] = Field(default=[])
    context: list[Annotated[tuple[str, list[str]], Field(strict=False)]] = Field(default=[])  # JSON has no tuples


def read_contexts(sources: Sequence[Path], *, skip_bad: bool = False) -> Iterator[Placed]:
    """Stream the passages of the questions of files, each once: its id is the hash of its title and text.

    Args:
        sources: Files such as musique_ans_v1.0_dev.jsonl, hotpot_dev_distractor_v1.json or 2WikiMultihopQA's dev.json;
            a .json file is read whole.
        skip_bad: Leave out questions whose contexts cannot be used, with a warning each.

    Raises:
        InputError: If a source is no such file, or a question has no contexts; the message names its place.
    """
    problems, ids = Problems(skip_bad), set[str]()
    for source in sources:
        for entry in read_rows(source):
            try:
                passages = _passages(entry)
            except InputError as error:
                problems.add(error)
                problems.refuse()
                continue
            for passage in passages:
                if passage.id not in ids:
                    ids.add(passage.id)
                    yield Placed(passage, entry.place)


def _passages(entry: Entry) -> list[Passage]:
    question = parse(_Question, entry)
    texts = [(p.title, p.paragraph_text) for p in question.paragraphs]
    texts += [(title, " ".join(s.strip() for s in sentences)) for title, sentences in question.context]
    if not texts:
        raise misfit(entry.place, _NO_CONTEXTS)
    rows = [{"id": id_of(title, text), "title": title, "text": text} for title, text in texts if text.strip()]
    try:
        return [passage_of(row, FieldMap()) for row in rows]
    except ValueError as error:
        raise misfit(entry.place, str(error)) from None
