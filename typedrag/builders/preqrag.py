"""Synthetic single- and multi-document questions with their categories (PreQRAG, section 3.2, appendix D)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import dspy

from typedrag.builders.builder import Built, OpenLM, usable
from typedrag.builders.settings import PreQRAGQuestionsSettings
from typedrag.core.errors import InputError, names_hint
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
_PASSAGE_WORDS = ("passage", "passages", "excerpt", "excerpts")
_TYPES = {"factoid": QuestionType.FACTOID, "comparison": QuestionType.COMPARISON}


class PreQRAGQuestions(PreQRAGQuestionsSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        if self.index and self.passages:
            raise InputError("both an index and passages are named", "Give --index or --passages")
        if self.passages and self.retriever not in ("bm25", "auto"):
            raise InputError(
                f"--passages are searched by BM25, not by '{self.retriever}'", "Build an index, and give --index"
            )
        check_categories(self.scopes, self.only)
        with TemporaryDirectory() as folder:
            index = self.index
            if self.passages:
                index = Path(folder, "index")
                build_index(read_passages(self.passages), index, sources=[str(p) for p in self.passages])
            searched = open_retriever(self.retriever, index)
            drawn_from = searched.passages()  # refused before an LM is opened
            with use_lm(open_lm(None)):
                return self.write(drawn_from, searched, stages)

    @property
    def scopes(self) -> list[DocumentScope]:
        """The scopes of the questions that are wanted."""
        counts = {DocumentScope.SINGLE: self.single, DocumentScope.MULTI: self.multi}
        return [scope for scope, count in counts.items() if count]

    def write(self, passages: Iterable[Passage], retriever: Retriever, stages: Stages) -> Built:
        """Build questions in the layout of dataset `file`, with their scope as `subset`. Passages are drawn by the
        hashes of their ids; a passage's partner is drawn among those of other documents that its own words find."""
        check_categories(self.scopes, self.only)
        built = Built()
        most = self.attempts * max(self.single, 2 * self.multi)
        drawn = nsmallest(most, passages, key=lambda p: text_hash(p.id, self.seed))
        ask_one, ask_two = dspy.Predict(AskOfOnePassage), dspy.Predict(AskOfTwoPassages)
        earlier: set[frozenset[str]] = set()

        def ask_for_question(plan: _Plan) -> tuple[str, str]:
            shown = number_passages(plan.passages, self.passage_words)
            inputs = {"passage": shown[0]} if len(shown) == 1 else {"passages": shown}
            predict = ask_one if len(shown) == 1 else ask_two
            requirements = [category.requirement for category in plan.categories.values()]
            reply = ask("write", predict, retries=self.retries, requirements=requirements, **inputs)
            pair = reply.prediction.asked
            return " ".join(pair.question.split()), pair.answer.strip()

        def make(scope: DocumentScope, count: int, groups: Sequence[tuple[Passage, ...]]) -> None:
            plans = []
            for group in groups[: self.attempts * count]:
                rng = Random(f"{self.seed}:{scope}:{group[0].id}")
                plans.append(_Plan(scope, group, draw_categories(scope, rng, self.only)))
            before = len(built.rows)
            while plans and (missing := count - len(built.rows) + before) > 0:
                batch, plans = plans[:missing], plans[missing:]
                for plan, written in usable(
                    batch, stages.run("questions", ask_for_question, batch, more=True), built, f"{scope}: "
                ):
                    if reason := _find_fault(plan, written, earlier):
                        built.left_out[f"{scope}: {reason}"] += 1
                    else:
                        question, answer = written
                        earlier.add(content_words(question))
                        kinds = {choice: category.name for choice, category in plan.categories.items()}
                        question_type = _TYPES.get(kinds["answer"])
                        row = {
                            "id": make_id(question, *(p.id for p in plan.passages)),
                            "subset": scope.value,
                            "question": question,
                            **({"question_type": question_type.value} if question_type else {}),
                            "references": [{"text": answer, "label": 1}],
                            "passage_ids": [p.id for p in plan.passages],
                            "categories": kinds,  # for readers
                        }
                        built.rows.append(row)
            if missing := count - len(built.rows) + before:
                built.left_out[f"{scope}: too few passages or usable questions"] += missing

        make(DocumentScope.SINGLE, self.single, [(p,) for p in drawn])
        make(DocumentScope.MULTI, self.multi, self._pair_passages(drawn, retriever))
        stages.end("questions")
        return built

    def _pair_passages(self, drawn: Sequence[Passage], retriever: Retriever) -> list[tuple[Passage, ...]]:
        """Pairs of a passage and a related one of another document; no passage is in two pairs."""
        firsts = drawn[: 2 * self.attempts * self.multi]
        queries = [first_words(" ".join(f"{p.title} {p.text}".split()), _QUERY_WORDS) for p in firsts]
        used: set[str] = set()
        pairs: list[tuple[Passage, ...]] = []
        for passage, results in zip(firsts, retriever.search(queries, _RELATED), strict=True):
            others = [
                p
                for p in results
                if p.id not in used and p.id != passage.id and not (p.title and p.title == passage.title)
            ]
            if others and passage.id not in used:
                partner = Random(f"{self.seed}:{passage.id}").choice(others)
                used |= {passage.id, partner.id}
                pairs.append((passage, partner))
        return pairs


class _Plan(NamedTuple):
    """A question to be written: its passages and its categories."""

    scope: DocumentScope
    passages: tuple[Passage, ...]
    categories: dict[str, Category]


def _find_fault(plan: _Plan, written: tuple[str, str], earlier: Container[frozenset[str]]) -> str:
    """The reason why a question cannot be used beside the earlier ones; empty if it can."""
    question, answer = written
    length = plan.categories["length"].name
    if (len(question.split()) >= SHORTEST_LONG) != (length == "long"):
        return f"it is not {length}"
    texts = [f"{p.title} {p.text}" for p in plan.passages]
    question_words = {word.strip(".,;:?!'\"()").lower() for word in question.split()}
    if any(word in question_words and word not in " ".join(texts).lower() for word in _PASSAGE_WORDS):
        return "it speaks of its passage"
    words, answered = [content_words(text) for text in texts], content_words(answer)
    others = [frozenset().union(*(w for w in words if w is not own)) for own in words]
    if not all(answered & (own - other) for own, other in zip(words, others, strict=True)):
        return "the answer uses nothing of a passage"
    return "it repeats another" if content_words(question) in earlier else ""


# The paper lists its categories as three schemas (appendix D), of which the first holds several choices: a question
# has one category of each choice. Its wording is DataMorgana's (Filice et al. 2025); ours is our own.

SHORTEST_LONG = 7


@dataclass(frozen=True)
class Category:
    """A category of questions: its name in the paper, its description for an LM, the scopes of its questions."""

    name: str
    requirement: str
    scopes: tuple[DocumentScope, ...] = tuple(DocumentScope)


_SINGLE, _MULTI = (DocumentScope.SINGLE,), (DocumentScope.MULTI,)

CHOICES: Mapping[str, tuple[Category, ...]] = {
    "answer": (
        Category("factoid", "it asks for one fact, such as a name, a date or a number", _SINGLE),
        Category("non-factoid", "it asks for an explanation, a description or advice, not for one fact", _SINGLE),
        Category("multi-aspect", "it asks for two different aspects of a topic, one from each passage", _MULTI),
        Category("comparison", "it compares two things, each of which one passage is about", _MULTI),
    ),
    "premise": (
        Category("direct", "it asks straight away and says nothing of who asks or why"),
        Category("with-premise", "before it asks, it tells something of who asks that matters for the answer"),
    ),
    "length": (
        Category("long", f"it has {SHORTEST_LONG} words or more"),
        Category("short", f"it has fewer than {SHORTEST_LONG} words", _SINGLE),
    ),
    "turn": (
        Category("first-turn", "it opens a conversation and can be understood by itself"),
        Category("non-first-turn", "it goes on with a conversation on the same topic, and may refer to it"),
    ),
    "formulation": (
        Category("natural", "it is worded as people talk"),
        Category("search-query", "it is worded as keywords typed into a web search engine, without a question mark"),
    ),
    "expertise": (
        Category("expert", "its asker is an expert and uses the terms of the field"),
        Category("novice", "its asker knows next to nothing of the field and uses everyday words"),
    ),
}


def draw_categories(scope: DocumentScope, rng: Random, only: Mapping[str, tuple[str, ...]]) -> dict[str, Category]:
    """Draw a category of each choice, all with the same chance; no short question has a premise."""
    check_categories([scope], only)
    drawn: dict[str, Category] = {}
    for choice in CHOICES:
        categories = _wanted(scope, choice, only)
        if choice == "length" and drawn["premise"].name == "with-premise":
            categories = [c for c in categories if c.name != "short"] or categories
        drawn[choice] = rng.choice(categories)
    return drawn


def check_categories(scopes: Iterable[DocumentScope], only: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse categories that questions of these scopes cannot have."""
    for choice, names in only.items():
        if choice not in CHOICES:
            raise InputError(f"questions have no '{choice}'", names_hint("Choices", choice, CHOICES))
        known = [c.name for c in CHOICES[choice]]
        if unknown := [name for name in names if name not in known]:
            hint = names_hint("Categories", unknown[0], known)
            raise InputError(f"'{unknown[0]}' is no category of '{choice}'", hint)
    for scope in scopes:
        for choice in only:
            if not _wanted(scope, choice, only):
                allowed = ", ".join(c.name for c in CHOICES[choice] if scope in c.scopes)
                raise InputError(f"no {scope} question has the wanted '{choice}'", f"Use one of: {allowed}")


def _wanted(scope: DocumentScope, choice: str, only: Mapping[str, tuple[str, ...]]) -> list[Category]:
    return [c for c in CHOICES[choice] if scope in c.scopes and c.name in only.get(choice, (c.name,))]
