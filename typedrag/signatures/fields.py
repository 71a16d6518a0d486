"""Types of signature fields whose limits DSPy enforces.

DSPy ignores limits on a top-level `list[...]` field: they are neither in the JSON schema that
constrains decoding nor checked when a reply is parsed. Inside a model they are both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints, create_model

from typedrag.records import Passage


def _leave_only_constraints(schema: dict[str, Any]) -> None:
    # The schema is part of every prompt; the names and docstrings below are for readers of the code.
    schema.pop("title", None)
    schema.pop("description", None)


_CONFIG = ConfigDict(json_schema_extra=_leave_only_constraints)


Question = Annotated[str, StringConstraints(pattern=r"^[^?？؟\n]{6,160}[?？؟]$")]
"""One short question. A small LM is kept by it from asking two at once and from never ending."""

Phrase = Annotated[str, StringConstraints(pattern=r"^[^\n]{1,60}$")]
"""A few words."""


class SubQueries(RootModel[list[str]]):
    """2 to 5 sub-queries (Typed-RAG, figures 13 and 14)."""

    model_config = _CONFIG
    root: Annotated[list[Question], Field(min_length=2, max_length=5)]


class Parts(RootModel[list[str]]):
    """1 to 5 questions: what a compound question asks for, or the question itself if that is one thing
    (HANRAG, table 10; its benchmark's questions have 2 to 4 parts)."""

    model_config = _CONFIG
    root: Annotated[list[Question], Field(min_length=1, max_length=5)]


class NextQuestion(RootModel[str]):
    """One question."""

    model_config = _CONFIG
    root: Question


class EntityQuestion(BaseModel):
    """A question about an entity, and its short answer (HANRAG, table 15)."""

    model_config = _CONFIG
    question: Question
    answer: Annotated[str, StringConstraints(pattern=r"^[^\n]{1,80}$")]


class JoinedQuestion(RootModel[str]):
    """One question that asks for several things (HANRAG, table 16)."""

    model_config = _CONFIG
    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+[?？؟]$", min_length=7, max_length=501)]


class Keywords(RootModel[list[str]]):
    """1 to 8 keywords (Typed-RAG, figure 12)."""

    model_config = _CONFIG
    root: Annotated[list[Phrase], Field(min_length=1, max_length=8)]


class Items(RootModel[list[str]]):
    """The items of a comparison, at most 5 (Typed-RAG, figure 10)."""

    model_config = _CONFIG
    root: Annotated[list[Phrase], Field(max_length=5)]


class Citations(RootModel[list[int]]):
    """Numbers of passages, at most 10."""

    model_config = _CONFIG
    root: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(max_length=10)]


Purpose = Literal["difference", "similarity", "superiority"]
"""What a comparison is for (Typed-RAG, section 3.2)."""


class Side(BaseModel):
    """One side of a debate: how it sees the topic, and the query that finds its arguments."""

    model_config = _CONFIG
    perspective: Phrase
    sub_query: Question


class Sides(RootModel[list[Side]]):
    """2 to 5 sides of a debate (Typed-RAG, figure 16)."""

    model_config = _CONFIG
    root: Annotated[list[Side], Field(min_length=2, max_length=5)]


class SubAspects(RootModel[list[str]]):
    """2 to 7 sub-aspects of a question (RichRAG, figure 10)."""

    model_config = _CONFIG
    root: Annotated[list[Phrase], Field(min_length=2, max_length=7)]


class PassageOrder(RootModel[list[int]]):
    """Numbers of passages in an order, at most 20."""

    model_config = _CONFIG
    root: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(min_length=1, max_length=20)]


class TwoQuestions(RootModel[list[str]]):
    """The two sub-questions of a multi-document question (PreQRAG, section 2.2.2)."""

    model_config = _CONFIG
    root: Annotated[list[Question], Field(min_length=2, max_length=2)]


class SearchQuery(RootModel[str]):
    """A query on one line (PreQRAG, section 2.2.1)."""

    model_config = _CONFIG
    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", max_length=200)]  # xgrammar fails on {1,200}


class QuestionWithAnswer(BaseModel):
    """A question on one line and its answer (PreQRAG, appendix D)."""

    model_config = _CONFIG
    question: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", min_length=5, max_length=400)]
    answer: Annotated[str, StringConstraints(min_length=1, max_length=1500)]


class WrittenAnswer(RootModel[str]):
    """An answer of some length (Typed-RAG, appendix A.1)."""

    model_config = _CONFIG
    root: Annotated[str, StringConstraints(min_length=1, max_length=1500)]


class WorseningAnswers(BaseModel):
    """Three answers, each far worse than the one before (Typed-RAG, appendix A.1)."""

    model_config = _CONFIG
    acceptable: Annotated[str, StringConstraints(min_length=1, max_length=800)]
    poor: Annotated[str, StringConstraints(min_length=1, max_length=800)]
    senseless: Annotated[str, StringConstraints(min_length=1, max_length=800)]


class ManyQuestions(RootModel[list[str]]):
    """10 to 20 questions (sub-question coverage, section 3.1: around 20)."""

    model_config = _CONFIG
    root: Annotated[list[Question], Field(min_length=10, max_length=20)]


class Verdict(BaseModel):
    """Whether a text answers a question, and by which words.

    The words come first: an LM that has written them decides by them.
    """

    model_config = _CONFIG
    fragment: Annotated[str, StringConstraints(max_length=240)]
    answered: bool


@lru_cache
def one_for_each(keys: tuple[str, ...], value: Any) -> type[BaseModel]:
    """A model that has exactly these keys, each with a value of this type."""
    fields: dict[str, Any] = dict.fromkeys(keys, (value, ...))
    return create_model("OneForEach", __config__=ConfigDict(**_CONFIG, extra="forbid"), **fields)


class PerspectiveAnswer(BaseModel):
    """What one side of a debate answers."""

    perspective: str
    answer: str


class QuestionAnswer(BaseModel):
    """A sub-query and its answer."""

    question: str
    answer: str


class PromptPassage(BaseModel):
    """A passage as an LM sees it: numbered, so that it can be cited by a short number."""

    number: int
    title: str
    text: str


def number_passages(passages: Sequence[Passage], max_words: int) -> list[PromptPassage]:
    """Number passages from 1 for a prompt and cut each to `max_words` words.

    Example:
        >>> number_passages([Passage(id="p7", text="Yeast makes gas.", title="Bread")], 2)
        [PromptPassage(number=1, title='Bread', text='Yeast makes')]
    """
    return [
        PromptPassage(number=i, title=_as_data(p.title), text=_as_data(first_words(p.text, max_words)))
        for i, p in enumerate(passages, 1)
    ]


def first_words(text: str, max_words: int) -> str:
    """At most so many words of a text, as a prompt shows it."""
    words = text.split()
    return text if len(words) <= max_words else " ".join(words[:max_words])


def _as_data(text: str) -> str:
    # A passage is quoted as a JSON string; DSPy's field markers are the one thing in it that could
    # still pass for the prompt's own structure.
    return text.replace("[[ ##", "[ ##")
