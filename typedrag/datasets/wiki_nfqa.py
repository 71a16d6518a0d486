"""Wiki-NFQA: the non-factoid questions of six QA datasets (Typed-RAG, section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import dspy
from pydantic import Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example
from typedrag.datasets.hub import hub_rows
from typedrag.datasets.reading import Entry, Id, Layout, Text, all_listed, misfit, parse, read_rows, rows_of, subsets_of
from typedrag.question_types import QuestionType
from typedrag.records import Reference

SUBSETS = ("nq", "squad", "trivia", "hotpotqa", "musique", "2wikimultihopqa")
FILES = {name: (f"{name}.jsonl", f"{name}/annotated_odqa_nf_test.jsonl") for name in SUBSETS}
HUB = "oneonlee/Wiki-NFQA"


class _Row(Layout):
    question_id: Id
    question_text: Text
    answer_list: list[Text]
    answer_label: list[int]
    answer_dict: dict[str, dict[str, str | None] | None] | None = None
    answers: list[Text] | None = None
    predicted_type: Annotated[QuestionType, Field(strict=False)] | None = None


@source(
    "wiki-nfqa",
    about="945 non-factoid questions on Wikipedia, each with about 11 answers that GPT-4o labelled 0 to 3",
    licence="CC BY-SA 4.0",
    home="https://huggingface.co/datasets/oneonlee/Wiki-NFQA",
)
def load_wiki_nfqa(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read Wiki-NFQA.

    References are the answers with their labels, best first; those of one label in the order of the source. The
    example's `reference_authors` names the author of each. `answers` are the mostly short answers of the
    question's own dataset; some references hold several of them as one written list, which is kept as it
    is. A question whose answers all have one label is left out, since none is better than
    another.

    Args:
        path: A file of the authors' repository, a folder with `SUBSET.jsonl` or
            `SUBSET/annotated_odqa_nf_test.jsonl` files, or a file that `typedrag datasets build
            wiki-nfqa` made, whose rows name their subsets.
        subset: One of nq, squad, trivia, hotpotqa, musique and 2wikimultihopqa, or of the subsets that the rows
            name, or several separated by commas; None takes all there are.

    Raises:
        InputError: If a row does not fit, or there is no such file or subset.
        Unavailable: If the hub cannot be reached.
    """
    if path:
        return build_dataset("wiki-nfqa", _rows_at(path, subset), _example, source=str(path))
    subsets = subsets_of(SUBSETS, subset)
    rows = hub_rows(HUB, {"test": "test"}, config="reference_answer_list")
    placed = (row._replace(subset=_subset_of(row)) for row in rows)
    return build_dataset("wiki-nfqa", (row for row in placed if row.subset in subsets), _example, source=HUB)


def _rows_at(path: Path, subset: str | None) -> Iterable[Entry]:
    """The rows of a file if all of them name their subset, else those of the authors' files."""
    if path.is_file():
        named = [row._replace(subset=_named(row)) for row in read_rows(path)]
        if named and all(row.subset for row in named):
            subsets = subsets_of(sorted({row.subset for row in named}), subset)
            return [row for row in named if row.subset in subsets]
    return rows_of(path, FILES, subset)


def _named(entry: Entry) -> str:
    subset = entry.value.get("subset") if isinstance(entry.value, dict) else None
    return subset if isinstance(subset, str) else ""


def _example(entry: Entry) -> dspy.Example | str:
    row = parse(_Row, entry)
    if len(row.answer_list) != len(row.answer_label):
        raise misfit(entry.place, f"it has {len(row.answer_list)} answers and {len(row.answer_label)} labels")
    if len(set(row.answer_label)) < 2:
        return "all its answers have the same label"
    order = sorted(range(len(row.answer_label)), key=lambda n: -row.answer_label[n])
    authors = _authors(row)
    answers = row.answers or [text for text in ((row.answer_dict or {}).get("ground_truth") or {}).values() if text]
    return example(
        id=row.question_id,
        question=row.question_text,
        subset=entry.subset,
        references=tuple(Reference(row.answer_list[n], row.answer_label[n]) for n in order),
        reference_authors=tuple(authors[n] for n in order) if authors else (),
        answers=all_listed(answers),
        **({"predicted_type": row.predicted_type} if row.predicted_type else {}),
    )


def _authors(row: _Row) -> list[str]:
    """The author of each answer; empty if the source does not name all of them."""
    by_author = (row.answer_dict or {}).items()
    written = [(author, text) for author, texts in by_author for text in (texts or {}).values() if text]
    return [author for author, _ in written] if [text for _, text in written] == row.answer_list else []


def _subset_of(entry: Entry) -> str:
    """The dataset that a question comes from, told by the form of the id in the hub's row."""
    identifier = parse(_Row, entry).question_id
    if identifier.startswith("single_"):
        return identifier.split("_")[1]
    if "hop" in identifier:
        return "musique"
    return "hotpotqa" if len(identifier) == _HOTPOTQA_ID else "2wikimultihopqa"


_HOTPOTQA_ID = len("5a88658955429938390d3f47")
