"""Questions in a user's own file, under any field names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import dspy
from pydantic import BeforeValidator, model_validator

from typedrag.core.errors import InputError
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


def _listed(value: Any) -> Any:
    """The list in a cell of a table: JSON or Python's if it begins with a bracket, else the cell as its only member."""
    if not isinstance(value, str):
        return value
    texts = listed(value)
    return parse_json(value) if texts == [value] and value.lstrip().startswith("[") else texts


class _Row(Layout):
    question: Text
    id: Id | None = None
    question_type: TypeName | None = None
    predicted_type: TypeName | None = None
    subset: Text | None = None
    references: Annotated[list[ReferenceRow] | list[Text], BeforeValidator(_listed)] | None = None
    answers: Annotated[list[Text], BeforeValidator(_listed)] | None = None
    passage_ids: Annotated[list[Id], BeforeValidator(_listed)] | None = None
    sub_questions: Annotated[list[SubQuestionRow], BeforeValidator(_listed)] | None = None
    nuggets: Annotated[list[NuggetRow], BeforeValidator(_listed)] | None = None
    aspects: Annotated[list[Text], BeforeValidator(_listed)] | None = None
    sub_answers: Annotated[list[Text], BeforeValidator(_listed)] | None = None

    @model_validator(mode="after")
    def _each_aspect_has_its_answer(self) -> Self:
        aspects, answers = self.aspects, self.sub_answers
        if aspects and answers and len(aspects) != len(answers):
            raise ValueError(f"it has {len(aspects)} aspects and {len(answers)} sub_answers, which are to be in pairs")
        return self


NAMES = tuple(_Row.model_fields)


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
    columns: dict[str, None] = {}

    def to_example(entry: Entry) -> dspy.Example:
        named = reading.renamed(entry, NAMES, fields or {})
        columns.update(dict.fromkeys(entry.value))
        values = {name: value for name, value in named.items() if value not in (None, "")}
        row = parse(_Row, entry._replace(value=values))
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

    dataset = replace(
        build_dataset("file", reading.read_rows(path), to_example, source=str(path)),
        columns=f"the file has {', '.join(map(repr, columns))}; what can be read is {', '.join(NAMES)}",
    )
    if subset is None:
        return dataset
    subsets = reading.choose_subsets(sorted({e.subset for e in dataset.examples if "subset" in e}), subset)
    return replace(dataset, examples=tuple(e for e in dataset.examples if e.get("subset") in subsets))


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
