"""The categories of questions that PreQRAG was evaluated on (paper 3, appendix D), and the drawing of them.

The paper lists them as three schemas, of which the first holds several choices: a question has one category
of each choice. The paper's wording is DataMorgana's (Filice et al. 2025); ours is our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope

SHORTEST_LONG = 7
"""The least number of words of a long question (appendix D)."""


@dataclass(frozen=True)
class Category:
    """A category of questions.

    Attributes:
        name: Its name in the paper.
        requirement: Its description for an LM.
        scopes: The scopes that its questions can have.
    """

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
"""The categories of each choice."""


def draw(scope: DocumentScope, luck: Random, only: Mapping[str, tuple[str, ...]]) -> dict[str, Category]:
    """Draw a category of each choice, all with the same chance; no short question has a premise.

    Args:
        only: The names of the categories to draw from, by choice; all of a choice that is not named.
    """
    check([scope], only)
    drawn: dict[str, Category] = {}
    for choice in CHOICES:
        categories = _wanted(scope, choice, only)
        if choice == "length" and drawn["premise"].name == "with-premise":
            categories = [c for c in categories if c.name != "short"] or categories
        drawn[choice] = luck.choice(categories)
    return drawn


def check(scopes: Iterable[DocumentScope], only: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse categories that questions of these scopes cannot have."""
    for choice, names in only.items():
        if choice not in CHOICES:
            raise InputError(f"questions have no '{choice}'", f"Choices: {', '.join(CHOICES)}")
        known = [c.name for c in CHOICES[choice]]
        if unknown := [name for name in names if name not in known]:
            raise InputError(f"'{unknown[0]}' is no category of '{choice}'", f"Categories: {', '.join(known)}")
    for scope in scopes:
        for choice in only:
            if not _wanted(scope, choice, only):
                allowed = ", ".join(c.name for c in CHOICES[choice] if scope in c.scopes)
                raise InputError(f"no {scope} question has the wanted '{choice}'", f"Use one of: {allowed}")


def _wanted(scope: DocumentScope, choice: str, only: Mapping[str, tuple[str, ...]]) -> list[Category]:
    return [c for c in CHOICES[choice] if scope in c.scopes and c.name in only.get(choice, (c.name,))]
