"""Questions in a user's own file, under any field names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.core.records import Nugget, Reference, SubQuestion
from typedrag.datasets import reading
from typedrag.datasets.dataset import Dataset, build_dataset, example, make_id, question_group
from typedrag.datasets.reading import (
    Entry,
    Id,
    Layout,
    NuggetRow,
    ReferenceRow,
    SubQuestionRow,
    Text,
    TypeName,
    listed,
    parse,
)
from typedrag.files.text_files import parse_json

if TYPE_CHECKING:
    import dspy

logger = logging.getLogger(__name__)


def _listed(value: Any) -> Any:
    """The list in a cell of a table: JSON or Python's if it begins with a bracket, else the cell as its only member."""
    if not isinstance(value, str):
        return value
    texts = listed(value)
    return parse_json(value) if texts == [value] and value.lstrip().startswith("[") else texts


class Row(Layout):
    """A question of a user's own file."""

    question: Text = Field(description="the question; only this column is required")
    id: Id | None = Field(None, description="an id that no other row has; by default made from the question")
    question_type: TypeName | None = Field(None, description=f"one of {', '.join(QuestionType)}")
    predicted_type: TypeName | None = Field(None, description="the same, if a program chose it instead of a person")
    subset: Text | None = Field(None, description="the name of a group of questions")
    references: Annotated[list[ReferenceRow] | list[Text], BeforeValidator(_listed)] | None = Field(
        None,
        description='answers with whole numbers as labels, the best with the highest, as [{"text": "…", "label": 3}], '
        "or texts, best first",
    )
    answers: Annotated[list[Text], BeforeValidator(_listed)] | None = Field(
        None, description='right answers, any of which counts, as ["…", "…"]'
    )
    passage_ids: Annotated[list[Id], BeforeValidator(_listed)] | None = Field(
        None, description='the ids of the passages that answer it, as ["…", "…"]'
    )
    sub_questions: Annotated[list[SubQuestionRow], BeforeValidator(_listed)] | None = Field(
        None,
        description='what a good answer also answers, as [{"text": "…", "type": "core"}], with a type of '
        f"{', '.join(SubQuestionType)}",
    )
    nuggets: Annotated[list[NuggetRow], BeforeValidator(_listed)] | None = Field(
        None, description='things that a good answer says, as [{"text": "…", "vital": true}]'
    )
    aspects: Annotated[list[Text], BeforeValidator(_listed)] | None = Field(
        None, description='sub-aspects of a broad question, as ["…", "…"]'
    )
    sub_answers: Annotated[list[Text], BeforeValidator(_listed)] | None = Field(
        None, description='the answers to the aspects, in the same order, as ["…", "…"]'
    )

    @model_validator(mode="after")
    def _each_aspect_has_its_answer(self) -> Self:
        aspects, answers = self.aspects, self.sub_answers
        if aspects and answers and len(aspects) != len(answers):
            raise ValueError(f"it has {len(aspects)} aspects and {len(answers)} sub_answers, which are to be in pairs")
        return self


NAMES = tuple(Row.model_fields)


def load_file(path: Path | None = None, fields: Mapping[str, str] | None = None, subset: str | None = None) -> Dataset:
    """Read the questions of a user's own file.

    `references` may be objects with `text` and `label`, or texts, best first, which are labelled
    downwards to 0. `nuggets` have a `text`, and are vital unless their `vital` is false. `aspects` are the
    sub-aspects of a broad question, and `sub_answers` the answers to them, in the same order (RichRAG,
    section 3.1). In CSV and TSV files a list is written as JSON, or as its only member. A row without an
    id gets one from its question; an empty cell counts as none.

    Args:
        path: A .jsonl, .csv, .tsv or .json file, also gzipped.
        fields: The names of fields in the file, as {"question": "query", "id": "qid"}; fields not named are
            called as in `NAMES`.
        subset: One of the subsets in the file, or several separated by commas; None takes all.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "questions.csv")
        >>> _ = file.write_text("qid,query,gold\\n7,Why is the sky blue?,Rayleigh scattering\\n")
        >>> load_file(file, {"id": "qid", "question": "query", "answers": "gold"}).examples[0].answers
        ('Rayleigh scattering',)
    """
    if path is None:
        raise InputError("dataset 'file' is read from a file", "Name it: --path")
    dataset = _read(path, fields or {}, reading.raise_fault)
    if subset is None:
        return dataset
    subsets = reading.choose_subsets(sorted({e.subset for e in dataset.examples if "subset" in e}), subset)
    return replace(dataset, examples=tuple(e for e in dataset.examples if e.get("subset") in subsets))


def check_file(path: Path, fields: Mapping[str, str] | None = None) -> tuple[Dataset, list[str]]:
    """The questions of a user's own file, and all its faults: one line for the rows with the same fault.

    Args:
        path: As for `load_file`.
        fields: Likewise.
    """
    places: dict[str, list[str]] = {}

    def keep(place: str, error: InputError) -> None:
        places.setdefault(str(error).removeprefix(place), []).append(place)

    try:
        dataset = _read(path, fields or {}, keep)
    except InputError as error:  # nothing after it can be read, or no row is usable
        dataset = Dataset("file", (), source=str(path))
        if not places:
            keep("", error)
    more = {fault: f" and {len(rows) - 1:,} more" if len(rows) > 1 else "" for fault, rows in places.items()}
    return dataset, [f"{rows[0]}{more[fault]}{fault}" for fault, rows in places.items()]


def _read(path: Path, fields: Mapping[str, str], on_fault: reading.OnFault) -> Dataset:
    columns: dict[str, None] = {}

    def to_example(entry: Entry) -> dspy.Example:
        named = reading.renamed(entry, NAMES, fields)
        columns.update(dict.fromkeys(entry.value))
        values = {name: value for name, value in named.items() if value not in (None, "")}
        row = parse(Row, entry._replace(value=values))
        rows: Sequence[ReferenceRow | str] = row.references or ()
        references = [
            Reference(r, len(rows) - n) if isinstance(r, str) else Reference(r.text, r.label)
            for n, r in enumerate(rows, 1)
        ]
        known: dict[str, Any] = {
            "question_type": row.question_type,
            "predicted_type": row.predicted_type,
            "subset": row.subset,
            "references": tuple(sorted(references, key=lambda r: -r.label)),
            "answers": reading.all_listed(row.answers or ()),
            "passage_ids": tuple(row.passage_ids or ()),
            "sub_questions": tuple(SubQuestion(s.text, s.type) for s in row.sub_questions or ()),
            "nuggets": tuple(Nugget(n.text, n.vital, n.wordings) for n in row.nuggets or ()),
            "aspects": tuple(row.aspects or ()),
            "sub_answers": tuple(row.sub_answers or ()),
        }
        known = {name: value for name, value in known.items() if value}
        return example(id=row.id or make_id(row.question), question=row.question, **known)

    dataset = build_dataset(
        "file", reading.read_rows(path, on_fault=on_fault), to_example, source=str(path), on_fault=on_fault
    )
    if unread := [column for column in columns if column not in (*NAMES, *fields.values())]:
        words = "%s: not read: %s. If one is a field of another name, say so: --field NAME=COLUMN, with a NAME of %s"
        logger.warning(words, path, ", ".join(map(repr, unread)), ", ".join(NAMES))
    return replace(
        dataset, columns=f"the file has {', '.join(map(repr, columns))}; what can be read is {', '.join(NAMES)}"
    )


def read_nuggets(path: Path) -> dict[str, tuple[Nugget, ...]]:
    """The nuggets in a file of questions, by `question_group`."""
    nuggets = {question_group(e): e.nuggets for e in load_file(path).examples if e.get("nuggets")}
    if not nuggets:
        raise InputError(f"{path} has no question with nuggets", "Make it: typedrag datasets build nuggets")
    return nuggets


def with_nuggets(dataset: Dataset, path: Path) -> Dataset:
    """The dataset with the nuggets that a file has for its questions."""
    nuggets = read_nuggets(path)
    examples = (e.copy(nuggets=nuggets.get(question_group(e), ())) for e in dataset.examples)
    return replace(dataset, examples=tuple(examples))


def field_mapping(pairs: Iterable[str]) -> dict[str, str]:
    """The mapping written as NAME=FIELD pairs."""
    mapping = {}
    for pair in pairs:
        name, _, field = pair.partition("=")
        if not name or not field:
            raise InputError(f"'{pair}' maps no field", "Write it like question=query")
        mapping[name] = field
    return mapping
