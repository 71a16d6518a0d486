"""Questions with gold answers, by the name that a user gives: benchmarks are made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import dspy
from pydantic import AliasChoices, Field

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets.dataset import example, load_dataset, make_id, sources
from typedrag.datasets.reading import Entry, Id, Layout, Text, all_listed, members, parse, read_json, read_rows


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
        return Passage(self.passage_id or make_id(self.title, self.text), self.text, self.title)


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
            passage = Passage(make_id(title, text), text, title)
            for entry in members(paragraph, "qas"):
                row = parse(_SquadQuestion, entry)
                if row.answers:
                    yield SingleHop(row.question.strip(), row.answers[0].text, title, relevant=(passage,))


_SHORT: Mapping[str, str] = {"natural-questions": "nq", "triviaqa": "trivia"}
"""Wiki-NFQA's names of datasets whose names are longer here."""


class QuestionSet(NamedTuple):
    """Questions of one origin.

    Attributes:
        name: The dataset's name in Wiki-NFQA, or the file's name up to its first dot.
        examples: Each with `id` and `question`, and with `answers` or `references` if it has any.
        skipped: The number of examples that the loader left out.
    """

    name: str
    examples: tuple[dspy.Example, ...]
    skipped: int = 0


def read_question_set(where: str, subset: str | None = None) -> QuestionSet:
    """Read questions with their gold answers.

    Args:
        where: DATASET, fetched from its home, or DATASET:PATH for a copy; or a file
            that `read_single_hop` reads.
        subset: A subset of the dataset, such as validation; None takes all there are.
    """
    name, _, path = where.partition(":")
    if name in {source.name for source in sources()}:
        options = {"subset": subset} if subset else {}
        dataset = load_dataset(name, Path(path).expanduser() if path else None, **options)
        called = _stem(Path(path)) if name == "file" else _SHORT.get(name, name)
        return QuestionSet(called, dataset.examples, len(dataset.skipped))
    if subset:
        raise InputError(f"{where} is a file without subsets", "Leave out the subset, or name a dataset: DATASET:PATH")
    file = Path(where).expanduser()
    if not file.is_file():
        raise InputError(f"'{where}' is neither a dataset nor a file", "Write DATASET, DATASET:PATH or FILE")
    examples = tuple(
        example(
            id=make_id(single.question), question=single.question, answers=(single.answer,) if single.answer else ()
        )
        for single in read_single_hop(file)
    )
    return QuestionSet(_stem(file), examples)


def _stem(file: Path) -> str:
    return file.name.partition(".")[0] or file.name
