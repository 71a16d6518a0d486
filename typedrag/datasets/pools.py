"""Pools of passages that rankers are trained and measured with: JSONL, a question a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets.reading import Id, Layout, Text, parse, read_rows
from typedrag.files.text_files import write_text

Label = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class PooledPassage(Layout):
    """A candidate passage, with what is known of its worth."""

    id: Id
    text: Text
    title: str = ""
    score: float = 0.0
    """The retriever's score."""
    label: Label | None = None
    """Its relevance, judged by a person; 0 is none. None if nobody judged it."""
    sub_aspects: list[Label] = Field(default_factory=list)
    """The pool's sub-aspects that it was found for, by their places from 0."""
    coverage: list[Share] | None = None
    """Its coverage of each text to be covered: φ of eq. 8."""

    @property
    def passage(self) -> Passage:
        """The passage as a retriever returns it."""
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

    def aspects_of(self, passage: PooledPassage) -> tuple[str, ...]:
        """The sub-aspects that a passage was found for."""
        return tuple(self.sub_aspects[place] for place in passage.sub_aspects)


def read_pools(path: Path) -> list[Pool]:
    """Read the pools of a file."""
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
