"""Synthetic single- and multi-document questions with their categories (PreQRAG, section 3.2, appendix D).

The authors let DataMorgana make them; here any LM writes them from passages of an index.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import ClassVar

import dspy
from pydantic import NonNegativeInt, PositiveInt

from typedrag.builders.builder import Builder, Built, OpenLM, Row, usable
from typedrag.builders.question_categories import SHORTEST_LONG, Category, check, draw
from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope, QuestionType
from typedrag.core.records import Passage
from typedrag.datasets.dataset import make_id, text_hash
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.retrieval import Retriever, build_index, open_retriever, read_passages
from typedrag.runs.work import Stages
from typedrag.signatures.fields import number_passages
from typedrag.signatures.generation import AskOfOnePassage, AskOfTwoPassages
from typedrag.text.words import content_words, first_words

_RELATED = 10
"""The best passages for a passage, from which its partner is drawn."""
_QUERY_WORDS = 40
_OF_PASSAGES = ("passage", "passages", "excerpt", "excerpts")
_TYPES = {"factoid": QuestionType.FACTOID, "comparison": QuestionType.COMPARISON}


class PreQRAGQuestions(Builder):
    """Have an LM write single- and multi-document questions of all kinds, with answers and passages.

    The result is read by --dataset file; its subsets are single-document and multi-document.
    """

    name: ClassVar[str] = "preqrag"
    counted: ClassVar[tuple[str, ...]] = ("subset",)

    index: Path | None = None
    """Index of passages to write questions on. Default: TYPEDRAG_INDEX, else a sample corpus."""
    passages: tuple[Path, ...] = ()
    """Instead: files or folders of passages, as for typedrag index build. Repeatable."""
    retriever: str = "bm25"
    """Finds a second passage in --index: bm25, dense, hybrid, hybrid:WEIGHT or auto."""
    single: NonNegativeInt = 110
    """Number of single-document questions (table D.1: 110)."""
    multi: NonNegativeInt = 106
    """Number of multi-document questions (table D.1: 106)."""
    only: Mapping[str, tuple[str, ...]] = {}
    """Use only these categories of a choice, such as turn=first-turn. Repeatable; default: all."""
    attempts: PositiveInt = 3
    """Maximum attempts for each question: some cannot be used."""
    passage_words: PositiveInt = 200
    """Words of a passage that the LM sees."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Random seed."""

    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        """See `Builder.build`."""
        if self.index and self.passages:
            raise InputError("both an index and passages are named", "Give --index or --passages")
        if self.passages and self.retriever not in ("bm25", "auto"):
            raise InputError(
                f"--passages are searched by BM25, not by '{self.retriever}'", "Build an index, and give --index"
            )
        self.check()
        with TemporaryDirectory() as folder:
            index = self.index
            if self.passages:
                index = Path(folder, "index")
                build_index(read_passages(self.passages), index, sources=[str(p) for p in self.passages])
            searched = open_retriever(self.retriever, index)
            drawn_from = searched.passages()  # refused before an LM is opened
            with use_lm(open_lm(None)):
                return build_preqrag(drawn_from, searched, stages, self)

    def check(self) -> None:
        """Raise an `InputError` if a category is unknown, or impossible for the questions of a scope."""
        counts = {DocumentScope.SINGLE: self.single, DocumentScope.MULTI: self.multi}
        check([scope for scope, count in counts.items() if count], self.only)


class QuestionOfPassages(dspy.Module):
    """Writes a question that one passage or two answer, and the answer."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.of_one = dspy.Predict(AskOfOnePassage)
        self.of_two = dspy.Predict(AskOfTwoPassages)
        self._retries = retries

    def forward(self, passages: Sequence[Passage], requirements: list[str], words: int) -> Row:
        """The `question` and its `answer`."""
        shown = number_passages(passages, words)
        inputs = {"passage": shown[0]} if len(shown) == 1 else {"passages": shown}
        predictor = self.of_one if len(shown) == 1 else self.of_two
        reply = ask("write", predictor, retries=self._retries, requirements=requirements, **inputs)
        pair = reply.prediction.asked
        return {"question": " ".join(pair.question.split()), "answer": pair.answer.strip()}


def build_preqrag(
    passages: Iterable[Passage],
    retriever: Retriever,
    stages: Stages,
    settings: PreQRAGQuestions,
) -> Built:
    """Build questions in the layout of dataset `file`, with their scope as `subset`.

    Passages are drawn by the hashes of their ids. A passage's partner comes from another document and is drawn among
    the passages that its own words find. A question is left out if it has the wrong length,
    speaks of its passages, or repeats another, or if an answer from two passages uses nothing of one of them;
    another question is then tried.

    Args:
        passages: All passages that questions may be about.
        stages: Ask the LM in use.

    Raises:
        InputError: If a category is unknown, or impossible for a scope's questions.
        LMUnavailable: If the LM cannot be used; its texts so far are kept.
    """
    settings.check()
    built = Built()
    most = settings.attempts * max(settings.single, 2 * settings.multi)
    drawn = nsmallest(most, passages, key=lambda p: text_hash(p.id, settings.seed))
    writer = QuestionOfPassages(settings.retries)
    earlier: set[frozenset[str]] = set()

    def write(plan: _Plan) -> Row:
        written: Row = writer(**plan.arguments)
        return written

    def make(scope: DocumentScope, count: int, groups: Sequence[tuple[Passage, ...]]) -> None:
        plans = [_Plan(scope, group, settings) for group in groups[: settings.attempts * count]]
        before = len(built.rows)
        while plans and (missing := count - len(built.rows) + before) > 0:
            batch, plans = plans[:missing], plans[missing:]
            for plan, written in usable(batch, stages.run("questions", write, batch, more=True), built, f"{scope}: "):
                if reason := plan.useless(written, earlier):
                    built.left_out[f"{scope}: {reason}"] += 1
                else:
                    earlier.add(content_words(written["question"]))
                    built.rows.append(plan.row(written))
        if missing := count - len(built.rows) + before:
            built.left_out[f"{scope}: too few passages or usable questions"] += missing

    make(DocumentScope.SINGLE, settings.single, [(p,) for p in drawn])
    make(DocumentScope.MULTI, settings.multi, _pairs(drawn, retriever, settings))
    stages.end("questions")
    return built


class _Plan:
    """A question to be written: its passages and its categories."""

    def __init__(self, scope: DocumentScope, passages: tuple[Passage, ...], settings: PreQRAGQuestions) -> None:
        self.scope, self.passages = scope, passages
        luck = Random(f"{settings.seed}:{scope}:{passages[0].id}")
        self.categories: dict[str, Category] = draw(scope, luck, settings.only)
        requirements = [category.requirement for category in self.categories.values()]
        self.arguments = {"passages": passages, "requirements": requirements, "words": settings.passage_words}

    def useless(self, written: Row, earlier: Container[frozenset[str]]) -> str:
        """The reason why the question cannot be used beside the earlier ones; empty if it can."""
        question, length = written["question"], self.categories["length"].name
        if (len(question.split()) >= SHORTEST_LONG) != (length == "long"):
            return f"it is not {length}"
        texts = [f"{p.title} {p.text}" for p in self.passages]
        question_words = {word.strip(".,;:?!'\"()").lower() for word in question.split()}
        if any(word in question_words and word not in " ".join(texts).lower() for word in _OF_PASSAGES):
            return "it speaks of its passage"
        words, answer = [content_words(text) for text in texts], content_words(written["answer"])
        others = [frozenset().union(*(w for w in words if w is not own)) for own in words]
        if not all(answer & (own - other) for own, other in zip(words, others, strict=True)):
            return "the answer uses nothing of a passage"
        return "it repeats another" if content_words(question) in earlier else ""

    def row(self, written: Row) -> Row:
        """The row for dataset `file`; the categories are for readers."""
        kinds = {choice: category.name for choice, category in self.categories.items()}
        question_type = _TYPES.get(kinds["answer"])
        return {
            "id": make_id(written["question"], *(p.id for p in self.passages)),
            "subset": self.scope.value,
            "question": written["question"],
            **({"question_type": question_type.value} if question_type else {}),
            "references": [{"text": written["answer"], "label": 1}],
            "passage_ids": [p.id for p in self.passages],
            "categories": kinds,
        }


def _pairs(drawn: Sequence[Passage], retriever: Retriever, settings: PreQRAGQuestions) -> list[tuple[Passage, ...]]:
    """Pairs of a passage and a related one of another document; no passage is in two pairs."""
    firsts = drawn[: 2 * settings.attempts * settings.multi]
    queries = [first_words(" ".join(f"{p.title} {p.text}".split()), _QUERY_WORDS) for p in firsts]
    used: set[str] = set()
    pairs: list[tuple[Passage, ...]] = []
    for passage, results in zip(firsts, retriever.search(queries, _RELATED), strict=True):
        others = [p for p in results if p.id not in used and p.id != passage.id and not _same_document(p, passage)]
        if others and passage.id not in used:
            partner = Random(f"{settings.seed}:{passage.id}").choice(others)
            used |= {passage.id, partner.id}
            pairs.append((passage, partner))
    return pairs


def _same_document(one: Passage, other: Passage) -> bool:
    return bool(one.title) and one.title == other.title
