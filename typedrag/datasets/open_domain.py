"""Questions with short answers: the six open-domain sets that HANRAG evaluates on (section 4.1), and a user's own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dspy
from pydantic import AliasChoices, Field

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets.dataset import Dataset, build_dataset, example, load_dataset, make_id, source, sources
from typedrag.datasets.reading import (
    Entry,
    Id,
    Layout,
    Text,
    all_listed,
    find_files,
    hub_rows,
    members,
    parse,
    read_json,
    read_rows,
)
from typedrag.datasets.reasoning_chains import WithContexts


@dataclass(frozen=True)
class SingleHop:
    """A question with the first of its gold answers, the entity that it is about, the passages that answer it, and
    `noise`, those that were retrieved and do not; each empty if the file does not tell."""

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
    """Questions of one origin, by its name in Wiki-NFQA or the file's up to its first dot, and the number of those left
    out."""

    name: str
    examples: tuple[dspy.Example, ...]
    skipped: int = 0


def read_question_set(where: str, subset: str | None = None) -> QuestionSet:
    """Read questions with their gold answers."""
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


def _squad_file(file: Path, part: str) -> Iterator[Entry]:
    for article in members(Entry(read_json(file), str(file), part), "data"):
        for paragraph in members(article, "paragraphs"):
            yield from members(paragraph, "qas")


class _NaturalQuestion(Layout):
    id: ClassVar[str] = ""
    question: Text
    answer: list[Text]


class _TriviaAnswer(Layout):
    value: Text = Field(validation_alias=AliasChoices("value", "Value"))
    aliases: list[str] = Field(default=[], validation_alias=AliasChoices("aliases", "Aliases"))


class _TriviaQuestion(Layout):
    id: Id = Field(validation_alias=AliasChoices("question_id", "QuestionId"))
    question: Text = Field(validation_alias=AliasChoices("question", "Question"))
    answer: _TriviaAnswer = Field(validation_alias=AliasChoices("answer", "Answer"))


class _SquadHubAnswers(Layout):
    text: list[Text]


class _OpenSquadQuestion(Layout):
    id: Id
    question: Text
    marked: list[SquadAnswer] | _SquadHubAnswers = Field(validation_alias="answers")


class _MultiHopQuestion(WithContexts):
    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: Text
    answer: Text
    answer_aliases: list[str] = Field(default=[])  # only MuSiQue has them


@dataclass(frozen=True)
class OpenDomainSet:
    """The place where an open-domain QA set is published, and the layout of its rows.

    Attributes:
        hub: Its name on the Hugging Face hub.
        columns: The hub's columns that are read.
        files: The names of its native files, by subset; the hub's splits have the names of the subsets.
        layout: The layout of a question, in the native files and on the hub.
        answers: The answers of a row of this layout.
        config: One of the configurations that the hub lists, or None.
        questions: Reads the questions of a native file.
    """

    name: str
    about: str
    licence: str
    hub: str
    columns: tuple[str, ...]
    files: dict[str, tuple[str, ...]]
    layout: type[Any]
    answers: Callable[[Any], Iterable[str]]
    config: str | None = None
    questions: Callable[[Path, str], Iterable[Entry]] = read_rows


OPEN_DOMAIN_SETS = (
    OpenDomainSet(
        name="natural-questions",
        about="questions to Google with short answers from Wikipedia (open version: 87,925 and 3,610)",
        licence="CC BY-SA 3.0",
        hub="google-research-datasets/nq_open",
        columns=("question", "answer"),
        files={"train": ("NQ-open.train.jsonl",), "validation": ("NQ-open.dev.jsonl",)},
        layout=_NaturalQuestion,
        answers=lambda row: row.answer,
    ),
    OpenDomainSet(
        name="triviaqa",
        about="trivia questions with short answers and their aliases (unfiltered: 87,622 and 11,313)",
        licence="unknown: the questions belong to quiz sites",
        hub="mandarjoshi/trivia_qa",
        config="unfiltered.nocontext",
        columns=("question_id", "question", "answer"),
        files={
            "train": ("unfiltered-web-train.json", "wikipedia-train.json", "web-train.json"),
            "validation": ("unfiltered-web-dev.json", "wikipedia-dev.json", "web-dev.json"),
        },
        layout=_TriviaQuestion,
        answers=lambda row: (row.answer.value, *row.answer.aliases),
        questions=lambda file, part: members(Entry(read_json(file), str(file), part), "Data"),
    ),
    OpenDomainSet(
        name="squad",
        about="questions on Wikipedia paragraphs with short answers (1.1: 87,599 and 10,570)",
        licence="CC BY-SA 4.0",
        hub="rajpurkar/squad",
        columns=("id", "question", "answers"),
        files={"train": ("train-v1.1.json",), "validation": ("dev-v1.1.json",)},
        layout=_OpenSquadQuestion,
        answers=lambda row: [a.text for a in row.marked] if isinstance(row.marked, list) else row.marked.text,
        questions=_squad_file,
    ),
    OpenDomainSet(
        name="musique",
        about="questions of two to four hops with short answers (answerable: 19,938 and 2,417)",
        licence="CC BY 4.0",
        hub="dgslibisey/MuSiQue",
        columns=("id", "question", "answer", "answer_aliases", "paragraphs"),
        files={"train": ("musique_ans_v1.0_train.jsonl",), "validation": ("musique_ans_v1.0_dev.jsonl",)},
        layout=_MultiHopQuestion,
        answers=lambda row: (row.answer, *row.answer_aliases),
    ),
    OpenDomainSet(
        name="hotpotqa",
        about="questions of two hops with short answers (90,447 and 7,405)",
        licence="CC BY-SA 4.0",
        hub="hotpotqa/hotpot_qa",
        config="distractor",
        columns=("id", "question", "answer", "context", "supporting_facts"),
        files={
            "train": ("hotpot_train_v1.1.json",),
            "validation": ("hotpot_dev_distractor_v1.json", "hotpot_dev_fullwiki_v1.json"),
        },
        layout=_MultiHopQuestion,
        answers=lambda row: (row.answer, *row.answer_aliases),
    ),
    OpenDomainSet(
        name="2wikimultihopqa",
        about="questions of two to four hops with short answers (167,454 and 12,576)",
        licence="Apache-2.0",
        hub="framolfese/2WikiMultihopQA",
        columns=("id", "question", "answer", "context", "supporting_facts"),
        files={"train": ("train.json",), "validation": ("dev.json",)},
        layout=_MultiHopQuestion,
        answers=lambda row: (row.answer, *row.answer_aliases),
    ),
)


def load_open_domain(data: OpenDomainSet, path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read an open-domain QA set.

    `answers` are the short gold answers, aliases included; `subset` is the authors' own split. A
    question without an answer is left out. The authors' test sets publish no answers. `passage_ids` are the passages
    that a question of several hops needs, by their ids in an index made with --contexts.

    Args:
        data: One of `OPEN_DOMAIN_SETS`.
        path: A native file, or a folder of them.
    """
    splits = {part: part for part in data.files}
    entries: Iterator[Entry] = (
        (e for part, file in find_files(path, data.files, subset) for e in data.questions(file, part))
        if path
        else hub_rows(data.hub, splits, config=data.config, subset=subset, columns=data.columns)
    )
    return build_dataset(data.name, entries, partial(_example, data=data), source=str(path or data.hub))


def _example(entry: Entry, *, data: OpenDomainSet) -> dspy.Example | str:
    row = parse(data.layout, entry)
    answers = all_listed(data.answers(row))
    if not answers:
        return "it has no answer"
    needed = row.passage_ids if isinstance(row, WithContexts) else ()
    return example(
        id=row.id or make_id(row.question),
        question=row.question,
        subset=entry.subset,
        answers=answers,
        **({"passage_ids": needed} if needed else {}),
    )


for _data in OPEN_DOMAIN_SETS:
    source(
        _data.name,
        about=_data.about,
        licence=_data.licence,
        home=f"https://huggingface.co/datasets/{_data.hub}",
    )(partial(load_open_domain, _data))
