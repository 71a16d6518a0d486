"""Questions that one search answers, from files of several layouts; other questions are made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import AliasChoices, Field

from typedrag.datasets.examples import id_of
from typedrag.datasets.reading import Entry, Id, Layout, Text, all_listed, members, parse, read_json, read_rows
from typedrag.records import Passage


@dataclass(frozen=True)
class SingleHop:
    """A question with one short answer.

    Attributes:
        answer: The first of its gold answers; empty if the file has none.
        entity: The entity that it is about; empty if the file does not tell.
        relevant: Passages that answer it; empty if they are not known.
        noise: Passages that were retrieved for it and do not answer it.
    """

    question: str
    answer: str
    entity: str = ""
    relevant: tuple[Passage, ...] = ()
    noise: tuple[Passage, ...] = ()


class _Context(Layout):
    title: str = ""
    text: Text
    passage_id: Id | None = Field(default=None, validation_alias=AliasChoices("passage_id", "psg_id", "id"))

    def passage(self) -> Passage:
        return Passage(self.passage_id or id_of(self.title, self.text), self.text, self.title)


class _Stem(Layout):
    stem: Text


class _Row(Layout):
    question: Text | _Stem
    answer: list[Text] | str = ""
    answers: list[Text] = Field(default=[])
    entity: str = ""
    positive_ctxs: list[_Context] = Field(default=[])
    hard_negative_ctxs: list[_Context] = Field(default=[])


class SquadAnswer(Layout):
    """An answer in SQuAD's files."""

    text: Text


class _SquadQuestion(Layout):
    question: Text
    answers: list[SquadAnswer]


class _SquadParagraph(Layout):
    context: Text


def read_single_hop(path: Path) -> Iterator[SingleHop]:
    """Yield the questions of a file: NQ-open's, DPR's with contexts, SQuAD 1.1's, CommonsenseQA's, or a user's own.

    A user's own rows have `question`, `answer` or `answers`, and perhaps `entity`. SQuAD's entity is the title
    of the article. DPR's positive contexts count as relevant, its hard negatives
    as noise.

    Args:
        path: A .jsonl, .csv, .tsv or .json file, also gzipped.

    Raises:
        InputError: If a row does not fit.
    """
    if path.name.removesuffix(".gz").endswith(".json"):
        whole = read_json(path)
        if isinstance(whole, dict) and "data" in whole:
            yield from _squad(Entry(whole, str(path)))
            return
        entries = members(Entry(whole, str(path)))
    else:
        entries = read_rows(path)
    for entry in entries:
        row = parse(_Row, entry)
        answers = row.answers or (row.answer if isinstance(row.answer, list) else [row.answer])
        yield SingleHop(
            question=row.question if isinstance(row.question, str) else row.question.stem,
            answer=next((a.strip() for a in all_listed(answers)), ""),
            entity=row.entity.strip(),
            relevant=tuple(c.passage() for c in row.positive_ctxs),
            noise=tuple(c.passage() for c in row.hard_negative_ctxs),
        )


def _squad(whole: Entry) -> Iterator[SingleHop]:
    for article in members(whole, "data"):
        title = str(article.value.get("title") or "").replace("_", " ") if isinstance(article.value, dict) else ""
        for paragraph in members(article, "paragraphs"):
            text = parse(_SquadParagraph, paragraph).context
            passage = Passage(id_of(title, text), text, title)
            for entry in members(paragraph, "qas"):
                row = parse(_SquadQuestion, entry)
                if row.answers:
                    yield SingleHop(row.question.strip(), row.answers[0].text, title, relevant=(passage,))
