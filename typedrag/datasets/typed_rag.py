"""The datasets of Typed-RAG: Wiki-NFQA, LINKAGE's, NF-CATS, and questions as people type them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AliasChoices, Field

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Reference
from typedrag.datasets import reading
from typedrag.datasets.dataset import Dataset, build_dataset, example, make_id
from typedrag.datasets.reading import Entry, Id, Layout, Text, TypeName, choose_subsets, misfit, parse, read_rows

if TYPE_CHECKING:
    import dspy

SUBSETS = ("nq", "squad", "trivia", "hotpotqa", "musique", "2wikimultihopqa")
WIKI_NFQA_FILES = {name: (f"{name}.jsonl", f"{name}/annotated_odqa_nf_test.jsonl") for name in SUBSETS}
WIKI_NFQA_HUB = "oneonlee/Wiki-NFQA"


class _WikiNfqaRow(Layout):
    question_id: Id
    question_text: Text
    answer_list: list[Text]
    answer_label: list[int]
    answer_dict: dict[str, dict[str, str | None] | None] | None = None
    answers: list[Text] | None = None
    predicted_type: Annotated[QuestionType, Field(strict=False)] | None = None


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
    """

    def rows() -> Iterable[Entry]:
        if path is None:
            subsets = choose_subsets(SUBSETS, subset)
            hub = reading.hub_rows(WIKI_NFQA_HUB, {"test": "test"}, config="reference_answer_list")
            return (row for each in hub if (row := each._replace(subset=_hub_subset(each))).subset in subsets)
        if path.is_file():  # all of its rows may name their subsets, as a builder's do
            named = [
                row._replace(subset=name if isinstance(name, str) else "")
                for row in read_rows(path)
                for name in [row.value.get("subset") if isinstance(row.value, dict) else None]
            ]
            if named and all(row.subset for row in named):
                subsets = choose_subsets(sorted({row.subset for row in named}), subset)
                return [row for row in named if row.subset in subsets]
        return reading.read_subsets(path, WIKI_NFQA_FILES, subset)

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(_WikiNfqaRow, entry)
        if len(row.answer_list) != len(row.answer_label):
            raise misfit(entry.place, f"it has {len(row.answer_list)} answers and {len(row.answer_label)} labels")
        if len(set(row.answer_label)) < 2:
            return "all its answers have the same label"
        order = sorted(range(len(row.answer_label)), key=lambda n: -row.answer_label[n])
        by_author = row.answer_dict or {}
        written = [(author, text) for author, texts in by_author.items() for text in (texts or {}).values() if text]
        is_complete = [text for _, text in written] == row.answer_list
        answers = row.answers or [text for text in (by_author.get("ground_truth") or {}).values() if text]
        return example(
            id=row.question_id,
            question=row.question_text,
            subset=entry.subset,
            references=tuple(Reference(row.answer_list[n], row.answer_label[n]) for n in order),
            reference_authors=tuple(written[n][0] for n in order) if is_complete else (),
            answers=reading.all_listed(answers),
            **({"predicted_type": row.predicted_type} if row.predicted_type else {}),
        )

    return build_dataset("wiki-nfqa", rows(), to_example, source=str(path or WIKI_NFQA_HUB))


def _hub_subset(entry: Entry) -> str:
    """The dataset that a question comes from, known by the form of the id in the hub's row."""
    identifier = parse(_WikiNfqaRow, entry).question_id
    if identifier.startswith("single_"):
        return identifier.split("_")[1]
    if "hop" in identifier:
        return "musique"
    return "hotpotqa" if len(identifier) == len("5a88658955429938390d3f47") else "2wikimultihopqa"


LINKAGE_HOME = (
    "https://raw.githubusercontent.com/babyyang525/LINKAGE-Listwise-NFQA-Evaluation/"
    "097fdc5f0d0a589570f3737c098e063a0eeae5bf/dataset"
)


class _LinkagePassage(Layout):
    id: Id = Field(validation_alias=AliasChoices("doc_id", "docid"))
    passage: Text
    label: int


def load_antique(path: Path | None = None, passage_prefix: str = "antique-") -> Dataset:
    """Read ANTIQUE as the LINKAGE authors prepared it.

    References are the passages with their labels, best first. `passage_ids` are the passages of label 3
    (reasonable) and more.

    Args:
        path: The authors' file ANTIQUE.json (also .gz), or its folder.
        passage_prefix: The prefix of passage ids in the corpus, which the file's ids lack.
    """
    return _load_linkage("antique", path, "ANTIQUE.json", 3, passage_prefix)


def load_trec_dl_nf(path: Path | None = None, passage_prefix: str = "msmarco-") -> Dataset:
    """Read TREC-DL-NF as the LINKAGE authors prepared it; like `load_antique`, but on another scale.

    `passage_ids` are the passages of label 2 (highly relevant) and more, which TREC counts as relevant.
    """
    return _load_linkage("trec-dl-nf", path, "TREC-DL-NF.json", 2, passage_prefix)


def _load_linkage(name: str, path: Path | None, file_name: str, least_label: int, prefix: str) -> Dataset:
    if path:
        [(_, file)] = reading.find_files(path, {name: (file_name, file_name.lower())})
    else:
        file = reading.download(f"{LINKAGE_HOME}/{file_name}")
    questions = reading.read_json(file)
    if not isinstance(questions, dict):
        raise misfit(str(file), "it is no JSON object of questions")

    def to_example(entry: Entry) -> dspy.Example:
        question, value = entry.value
        passages = [parse(_LinkagePassage, member) for member in reading.members(entry._replace(value=value))]
        passages.sort(key=lambda passage: -passage.label)
        needed = [passage for passage in passages if passage.label >= least_label]
        if not question.strip() or not passages:
            raise misfit(entry.place, "it has no question or no passage")
        return example(
            id=make_id(question),
            question=question,
            references=tuple(Reference(p.passage, p.label) for p in passages),
            passage_ids=tuple(f"{prefix}{p.id}" for p in needed),
            passage_texts=tuple(p.passage for p in needed),
        )

    entries = (Entry(pair, f"{file}, question '{pair[0]}'") for pair in questions.items())
    return build_dataset(name, entries, to_example, source=str(path or f"{LINKAGE_HOME}/{file_name}"))


NF_CATS_FILES = {name: (f"{name}.csv",) for name in ("train", "valid", "test")}
NF_CATS_HOME = (
    "https://raw.githubusercontent.com/Lurunchik/NF-CATS/1b8c3b83337dfe0889245e817f1ba104e69939bd/nfcats/data"
)


class _NfCatsRow(Layout):
    question: Text
    category: TypeName
    annotated_by: str = ""


def load_nf_cats(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read NF-CATS.

    `question_type` is the label, `subset` the authors' own split, and `annotated_by` names the
    annotators: authors, mturk, or unsupervised.

    Args:
        path: A file train.csv, valid.csv or test.csv, or their folder.
    """
    if path:
        files = reading.find_files(path, NF_CATS_FILES, subset)
    else:
        parts = choose_subsets(list(NF_CATS_FILES), subset)
        files = [(part, reading.download(f"{NF_CATS_HOME}/{NF_CATS_FILES[part][0]}")) for part in parts]

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_NfCatsRow, entry)
        known = {"question": row.question, "question_type": row.category, "annotated_by": row.annotated_by}
        return example(id=make_id(entry.subset, row.question), subset=entry.subset, **known)

    # the cache's file names do not tell their kind
    entries = chain.from_iterable(read_rows(file, part, kind=".csv") for part, file in files)
    return build_dataset("nf-cats", entries, to_example, source=str(path or NF_CATS_HOME))


EVERYDAY_QUESTIONS = Path(__file__).with_name("everyday") / "questions.jsonl"


class _EverydayRow(Layout):
    question: Text
    type: TypeName
    form: Text
    source: Text = "written"


def load_everyday(path: Path | None = None) -> Dataset:
    """Read questions with their `question_type`, and their form as `subset` (see `QuestionForm`).

    Args:
        path: A file of the same layout, such as one that `typedrag datasets build question-types` made; by default
            the one that typedrag ships.
    """

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_EverydayRow, entry)
        known = {"question": row.question, "question_type": row.type, "source": row.source}
        return example(id=make_id(row.form, row.question), subset=row.form, **known)

    return build_dataset(
        "everyday", read_rows(path or EVERYDAY_QUESTIONS), to_example, source=str(path or "the package")
    )
