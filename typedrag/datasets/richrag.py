"""The datasets of RichRAG: its own files, WikiAsp and WikiPassageQA (appendix A), and pools of passages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from typedrag.core.errors import InputError
from typedrag.core.records import Passage, Reference
from typedrag.datasets import reading
from typedrag.datasets.dataset import (
    Dataset,
    build_dataset,
    example,
    given_splits,
    make_id,
    official_splits,
    text_hash,
)
from typedrag.datasets.reading import Entry, Id, Layout, Text, choose_subsets, misfit, parse, read_rows
from typedrag.files.text_files import write_text

if TYPE_CHECKING:
    import dspy

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


def load_richrag(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read a data file of RichRAG's authors, as their code reads it: `wikipassageqa_…_test.…jsonl` and the like.

    `aspects` are the sub-aspects, without the question that some files write before each, and `sub_answers` the
    answers to them. The only reference is the whole answer. `subset` and split are the part that a file's name says.

    Args:
        path: A .jsonl file with the word train, dev or test in its name, or a folder with at most one for each.
    """
    if path is None:
        raise InputError("dataset 'richrag' is read from files of its authors", f"Fetch them from {HOME}: --path")

    def rows() -> Iterator[Entry]:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        for part in choose_subsets(PARTS, subset):
            named = [file for file in files if part in re.split(r"[^a-z]+", file.name.lower())]  # `latest` is no test
            if len(named) > 1:
                many = f"{path} holds {len(named)} files of part '{part}', such as {named[0].name}"
                raise InputError(many, "Name one file: --path")
            for file in named:
                yield from read_rows(file, part)

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_Row, entry)
        answers = row.answers or row.answer
        if not answers:
            raise misfit(entry.place, "it has no answer")
        if len(row.subqs) != len(row.subas):
            raise misfit(entry.place, f"it has {len(row.subqs)} sub-aspects and {len(row.subas)} sub-answers")
        return example(
            id=make_id(entry.subset, row.question, *answers),
            question=row.question,
            subset=entry.subset,
            references=(Reference("\n".join(answers), 1),),
            aspects=tuple(sub.removeprefix(row.question).lstrip(" :") or sub for sub in row.subqs),
            sub_answers=tuple(row.subas),
        )

    dataset = build_dataset("richrag", rows(), to_example, source=str(path))
    return replace(dataset, splits=given_splits(dataset.examples, "subset"))


class _Document(Layout):
    text: Text
    title: str = ""
    section: str = ""

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.section}" if self.section else self.title


class _Candidate(Layout):
    doc: _Document
    subqs: list[Text]


class CandidateRow(Layout):
    """A question of a candidate file of RichRAG's authors: its passages, each with the sub-aspects it was found for."""

    question: Text
    passages: Annotated[list[_Candidate], Field(min_length=1)]


def read_candidates(path: Path) -> Iterator[CandidateRow]:
    return (parse(CandidateRow, entry) for entry in read_rows(path))


DOMAINS = (
    "Album Animal Artist Building Company EducationalInstitution Event Film Group HistoricPlace Infrastructure"
    " MeanOfTransportation OfficeHolder Plant Single SoccerPlayer Software TelevisionShow Town WrittenWork"
).split()
WIKIASP_FILES = {part: (f"{part}.jsonl",) for part in ("train", "valid", "test")}
TITLES = "titles.tsv"
LEAST_ASPECTS = 2
"""Below, a question is not broad. RichRAG's appendix A says more than two; its table 2 has 2.4 on average."""
_SHARES = 12
"""One for validation, one for test, the others for training: 10:1:1 (RichRAG, appendix A)."""


class _WikiAspRow(Layout):
    exid: Id
    targets: list[Annotated[tuple[Text, Text], Field(strict=False)]]
    title: str = ""
    part: str


class _Title(Layout):
    exid: Id
    title: Text


def load_wikiasp(path: Path | None = None, subset: str | None = None, per_domain: int | None = None) -> Dataset:
    """Read WikiAsp as open-domain questions (RichRAG, appendix A).

    The question asks for a summary of an article. Its only reference is the summaries of all aspects,
    joined; `aspects` and `sub_answers` hold them one by one. `subset` is
    the domain, `part` the authors' own split. The published rows name no title: it is read from a
    field `title`, or from a file titles.tsv in the folder, with the columns exid and title. Articles
    without a known title or with fewer than two aspects are left out.

    Args:
        path: The folder of all domains, the folder of one (with train.jsonl, valid.jsonl,
            test.jsonl), or one such file.
        per_domain: Draw at most so many articles of each domain, whatever their part, and deal them out 10:1:1
            to train, validation and test; 517 make RichRAG's 10,339. By default all articles, in the authors' split.
    """
    if per_domain is not None and per_domain < 1:
        raise InputError(f"{per_domain} articles of a domain are none", "Set per_domain to 1 or more")
    if path is None:
        raise InputError(
            "the published rows of wikiasp lack the titles that its questions are made of",
            f"Name a copy whose rows have a field 'title', or that has a file {TITLES}: --path",
        )
    titles_file = (path if path.is_dir() else path.parent) / TITLES
    titled = (parse(_Title, entry) for entry in read_rows(titles_file)) if titles_file.exists() else ()
    titles = {row.exid: row.title for row in titled}

    def rows() -> Iterator[Entry]:
        there = [name for name in choose_subsets(DOMAINS, subset) if subset or (path / name).is_dir()]
        for folder in [path / name for name in there] or [path]:
            for part, file in reading.find_files(folder, WIKIASP_FILES):
                domain = file.parent.name
                for row in read_rows(file, domain if domain in DOMAINS else ""):
                    yield row._replace(value={**row.value, "part": part}) if isinstance(row.value, dict) else row

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(_WikiAspRow, entry)
        title = row.title or titles.get(row.exid, "")
        if not title:
            return f"the title of article '{row.exid}' is not known"
        if len(row.targets) < LEAST_ASPECTS:
            return f"article '{row.exid}' has fewer than {LEAST_ASPECTS} aspects"
        aspects, summaries = zip(*row.targets, strict=True)
        return example(
            id=row.exid,
            question=f"Generate a summary about {title}",
            subset=entry.subset,
            part=row.part,
            references=(Reference(" ".join(summaries), 1),),
            aspects=aspects,
            sub_answers=summaries,
        )

    dataset = build_dataset("wikiasp", rows(), to_example, source=str(path))
    if per_domain is not None:
        by_domain: dict[str, list[dspy.Example]] = {}
        for article in dataset.examples:
            by_domain.setdefault(article.subset, []).append(article)
        dealt = (
            article.copy(part={0: "test", 1: "valid"}.get(place % _SHARES, "train"))
            for articles in by_domain.values()
            for place, article in enumerate(sorted(articles, key=lambda e: text_hash(e.id))[:per_domain])
        )
        dataset = replace(dataset, examples=tuple(dealt))
    return replace(dataset, splits=official_splits(dataset.examples, "part"))


WIKIPASSAGEQA_FILES = {part: (f"{part}.tsv",) for part in ("train", "dev", "test")}
PASSAGES = "document_passages.json"
WIKIPASSAGEQA_HOME = "https://ciir.cs.umass.edu/downloads/wikipassageqa/WikiPassageQA.zip"


class _WikiPassageQaRow(Layout):
    QID: Id
    Question: Text
    DocumentID: Id
    RelevantPassages: Text


def load_wikipassageqa(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read WikiPassageQA.

    `passage_ids` are the passages that people found to answer the question, as `DOCUMENT_PASSAGE` numbers.
    The only reference is their texts, joined, which RichRAG uses as the long-form
    answer (appendix A). `subset` is the authors' own split.

    Args:
        path: The unpacked folder, or one of its .tsv files, with document_passages.json beside it.
    """
    folder = path or next(
        (p.parent for p in reading.download(WIKIPASSAGEQA_HOME, extract=True).rglob(PASSAGES)), Path(PASSAGES)
    )
    passages = (folder if folder.is_dir() else folder.parent) / PASSAGES
    if not passages.exists():
        raise InputError(f"there is no {passages}", "It belongs to WikiPassageQA and holds the texts of the passages")
    documents: dict[str, dict[str, str]] = reading.read_json(passages)

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_WikiPassageQaRow, entry)
        numbers = [number.strip() for number in row.RelevantPassages.split(",")]
        document = documents.get(row.DocumentID, {})
        if missing := [number for number in numbers if not document.get(number)]:
            lack = f"{passages.name} has no passage '{missing[0]}' of document '{row.DocumentID}'"
            raise misfit(entry.place, lack)
        texts = tuple(document[number] for number in numbers)
        return example(
            id=f"{entry.subset}-{row.QID}",
            question=row.Question,
            subset=entry.subset,
            references=(Reference(" ".join(texts), 1),),
            passage_ids=tuple(f"{row.DocumentID}_{number}" for number in numbers),
            passage_texts=texts,
        )

    rows = reading.read_subsets(folder, WIKIPASSAGEQA_FILES, subset)
    return build_dataset("wikipassageqa", rows, to_example, source=str(path or WIKIPASSAGEQA_HOME))


Label = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class PooledPassage(Layout):
    """A candidate passage, with what is known of its worth."""

    id: Id
    text: Text
    title: str = ""
    score: float = 0.0
    label: Label | None = None
    """Its relevance, judged by a person; 0 is none. None if nobody judged it."""
    sub_aspects: list[Label] = Field(default_factory=list)
    """The pool's sub-aspects that it was found for, by their places from 0."""
    coverage: list[Share] | None = None
    """Its coverage of each text to be covered: φ of eq. 8."""

    @property
    def passage(self) -> Passage:
        return Passage(self.id, self.text, self.title, self.score)


class Pool(Layout):
    """A question and its candidates, in the retriever's order."""

    id: Id
    question: Text
    passages: Annotated[list[PooledPassage], Field(min_length=1)]
    sub_aspects: list[Text] = Field(default_factory=list)
    answer: str = ""
    """A good answer to the whole question, if one is known."""
    sub_answers: list[Text] = Field(default_factory=list)
    """The answers to its sub-aspects, if they are known: the texts to be covered."""
    relevant_from: Annotated[int, Field(ge=1)] = 1
    """The lowest label that counts as relevant for measures that know only yes and no."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        ids = [p.id for p in self.passages]
        if len(set(ids)) < len(ids):
            raise ValueError("a passage is in it twice")
        if any(place >= len(self.sub_aspects) for p in self.passages for place in p.sub_aspects):
            raise ValueError("a passage is of a sub-aspect that the pool has not")
        widths = {None if p.coverage is None else len(p.coverage) for p in self.passages}
        if len(widths) > 1 or 0 in widths:
            raise ValueError("its passages differ in what they are said to cover")
        return self

    def passage_aspects(self, passage: PooledPassage) -> tuple[str, ...]:
        return tuple(self.sub_aspects[place] for place in passage.sub_aspects)


def read_pools(path: Path) -> list[Pool]:
    pools = [parse(Pool, entry) for entry in read_rows(path)]
    if not pools:
        raise InputError(f"{path} holds no pool", "Make some: typedrag research ranker pools")
    ids: set[str] = set()
    for pool in pools:
        if pool.id in ids:
            raise InputError(f"{path} has the id '{pool.id}' twice", "Make ids unique")
        ids.add(pool.id)
    return pools


def write_pools(path: Path, pools: Iterable[Pool]) -> int:
    """Write pools, the whole file or none of it, and return their number."""
    lines = [pool.model_dump_json(exclude_defaults=True) + "\n" for pool in pools]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(lines))
    return len(lines)
