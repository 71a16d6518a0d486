"""Questions with short answers: the six open-domain sets that HANRAG evaluates on (section 4.1), and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import AliasChoices, Field

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets import dataset, reading
from typedrag.datasets.reading import Entry, Id, Layout, Text, all_listed, members, parse, read_rows
from typedrag.datasets.reasoning_chains import WithContexts

if TYPE_CHECKING:
    import dspy


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
        return Passage(self.passage_id or dataset.make_id(self.title, self.text), self.text, self.title)


class _Stem(Layout):
    stem: Text


class _Row(Layout):
    question: Text | _Stem
    answer: list[Text] | str = ""
    answers: list[Text] = Field(default=[])
    entity: str = ""
    positive_ctxs: list[_Context] = Field(default=[])
    hard_negative_ctxs: list[_Context] = Field(default=[])


class _SquadAnswer(Layout):
    text: Text


class _HubAnswers(Layout):
    text: list[Text]


class _SquadQuestion(Layout):
    id: Id = ""
    question: Text
    marked: list[_SquadAnswer] | _HubAnswers = Field(validation_alias="answers")

    @property
    def texts(self) -> list[str]:
        return [a.text for a in self.marked] if isinstance(self.marked, list) else self.marked.text


def _squad_questions(whole: Entry) -> Iterator[tuple[Entry, Passage]]:
    """Yield the questions of a file of SQuAD 1.1, each with its paragraph."""
    for article in members(whole, "data"):
        title = str(article.value.get("title") or "").replace("_", " ") if isinstance(article.value, dict) else ""
        for paragraph in members(article, "paragraphs"):
            questions = members(paragraph, "qas")
            text = str(paragraph.value.get("context") or "") if isinstance(paragraph.value, dict) else ""
            passage = Passage(dataset.make_id(title, text), text, title)
            yield from ((question, passage) for question in questions)


def read_single_hop(path: Path) -> Iterator[SingleHop]:
    """Yield the questions of a file: NQ-open's, DPR's with contexts, SQuAD 1.1's, CommonsenseQA's, or a user's own.

    A user's own rows have `question`, `answer` or `answers`, and perhaps `entity`. SQuAD's entity is the title
    of the article. DPR's positive contexts count as relevant, its hard negatives as noise.
    """
    entries: Iterable[Entry]
    if path.name.removesuffix(".gz").endswith(".json"):
        whole = Entry(reading.read_json(path), str(path))
        if isinstance(whole.value, dict) and "data" in whole.value:
            for entry, passage in _squad_questions(whole):
                question = parse(_SquadQuestion, entry)
                if question.texts:
                    relevant = (passage,) if passage.text.strip() else ()
                    yield SingleHop(question.question.strip(), question.texts[0], passage.title, relevant)
            return
        entries = members(whole)
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
    is_dataset = name in {source.name for source in dataset.sources()}
    file = Path(path if is_dataset else where).expanduser()
    stem = file.name.partition(".")[0] or file.name
    if is_dataset:
        options = {"subset": subset} if subset else {}
        loaded = dataset.load_dataset(name, file if path else None, **options)
        return QuestionSet(stem if name == "file" else _SHORT.get(name, name), loaded.examples, len(loaded.skipped))
    if subset:
        raise InputError(f"{where} is a file without subsets", "Leave out the subset, or name a dataset: DATASET:PATH")
    if not file.is_file():
        raise InputError(f"'{where}' is neither a dataset nor a file", "Write DATASET, DATASET:PATH or FILE")
    examples = (
        dataset.example(id=dataset.make_id(s.question), question=s.question, answers=(s.answer,) if s.answer else ())
        for s in read_single_hop(file)
    )
    return QuestionSet(stem, tuple(examples))


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


class _MultiHopQuestion(WithContexts):
    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: Text
    answer: Text
    answer_aliases: list[str] = Field(default=[])  # only MuSiQue has them


@dataclass(frozen=True)
class OpenDomainSet:
    """The place where an open-domain QA set is published, and the layout of its rows there and in its native files.

    The hub's splits have the names of the subsets, which `files` gives with the names of the native files; `config` is
    one of the configurations that the hub lists, and `columns` are those that are read.
    """

    name: str
    about: str
    licence: str
    hub: str
    columns: tuple[str, ...]
    files: dict[str, tuple[str, ...]]
    layout: type[Any] = _MultiHopQuestion
    answers: Callable[[Any], Iterable[str]] = lambda row: (row.answer, *row.answer_aliases)
    config: str | None = None
    questions: Callable[[Path, str], Iterable[Entry]] = read_rows


def _whole(file: Path, part: str) -> Entry:
    return Entry(reading.read_json(file), str(file), part)


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
        questions=lambda file, part: members(_whole(file, part), "Data"),
    ),
    OpenDomainSet(
        name="squad",
        about="questions on Wikipedia paragraphs with short answers (1.1: 87,599 and 10,570)",
        licence="CC BY-SA 4.0",
        hub="rajpurkar/squad",
        columns=("id", "question", "answers"),
        files={"train": ("train-v1.1.json",), "validation": ("dev-v1.1.json",)},
        layout=_SquadQuestion,
        answers=lambda row: row.texts,
        questions=lambda file, part: (question for question, _ in _squad_questions(_whole(file, part))),
    ),
    OpenDomainSet(
        name="musique",
        about="questions of two to four hops with short answers (answerable: 19,938 and 2,417)",
        licence="CC BY 4.0",
        hub="dgslibisey/MuSiQue",
        columns=("id", "question", "answer", "answer_aliases", "paragraphs"),
        files={"train": ("musique_ans_v1.0_train.jsonl",), "validation": ("musique_ans_v1.0_dev.jsonl",)},
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
    ),
    OpenDomainSet(
        name="2wikimultihopqa",
        about="questions of two to four hops with short answers (167,454 and 12,576)",
        licence="Apache-2.0",
        hub="framolfese/2WikiMultihopQA",
        columns=("id", "question", "answer", "context", "supporting_facts"),
        files={"train": ("train.json",), "validation": ("dev.json",)},
    ),
)


def load_open_domain(data: OpenDomainSet, path: Path | None = None, subset: str | None = None) -> dataset.Dataset:
    """Read an open-domain QA set from a native file, a folder of them, or the hub.

    `answers` are the short gold answers, aliases included; `subset` is the authors' own split. A
    question without an answer is left out. The authors' test sets publish no answers. `passage_ids` are the passages
    that a question of several hops needs, by their ids in an index made with --contexts.
    """
    splits = {part: part for part in data.files}
    entries: Iterator[Entry] = (
        (e for part, file in reading.find_files(path, data.files, subset) for e in data.questions(file, part))
        if path
        else reading.hub_rows(data.hub, splits, config=data.config, subset=subset, columns=data.columns)
    )

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(data.layout, entry)
        answers = all_listed(data.answers(row))
        if not answers:
            return "it has no answer"
        needed = row.passage_ids if isinstance(row, WithContexts) else ()
        known = {"answers": answers, **({"passage_ids": needed} if needed else {})}
        return dataset.example(
            id=row.id or dataset.make_id(row.question), question=row.question, subset=entry.subset, **known
        )

    return dataset.build_dataset(data.name, entries, to_example, source=str(path or data.hub))
