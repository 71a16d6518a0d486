"""LiveRAG's questions: the benchmark that was published after the challenge in which PreQRAG took part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from typedrag.core.question_types import DocumentScope
from typedrag.datasets.dataset import Dataset, build_dataset, example
from typedrag.datasets.reading import Entry, Id, Layout, Text, choose_subsets, decode, hub_rows, parse, read_rows

if TYPE_CHECKING:
    import dspy

LIVERAG_HUB = "LiveRAG/Benchmark"
_COLUMNS = ("Index", "Question", "Answer", "Supporting_Documents", "Session")


def _from_json(value: Any) -> Any:
    return decode(value, "Supporting_Documents") if isinstance(value, str) else value


class _Document(Layout):
    doc_id: Id


class _Question(Layout):
    index: Id = Field(validation_alias="Index")
    question: Text = Field(validation_alias="Question")
    answer: Text = Field(validation_alias="Answer")
    documents: Annotated[list[_Document], BeforeValidator(_from_json)] = Field(
        validation_alias="Supporting_Documents", min_length=1
    )
    session: str = Field(default="", validation_alias="Session")


def load_liverag(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read LiveRAG's benchmark.

    `answers` holds the answer, `passage_ids` the documents of FineWeb that it was written from, and `session` when
    it was asked. `subset` is the scope, by the number of these documents: `single-document` or `multi-document`.

    Args:
        path: The benchmark as JSONL, CSV or JSON; by default it is read from the hub.
    """
    scopes = choose_subsets([scope.value for scope in DocumentScope], subset)
    entries = read_rows(path) if path else hub_rows(LIVERAG_HUB, {"": "train"}, columns=_COLUMNS)

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(_Question, entry)
        scope = DocumentScope.SINGLE if len(row.documents) == 1 else DocumentScope.MULTI
        if scope.value not in scopes:
            return f"it is of subset {scope.value}"
        return example(
            id=row.index,
            question=row.question,
            subset=scope.value,
            answers=(row.answer,),
            passage_ids=tuple(document.doc_id for document in row.documents),
            session=row.session,
        )

    return build_dataset("liverag", entries, to_example, source=str(path or LIVERAG_HUB))
