"""The test set of HANRAG's router: as many questions of each route, from datasets that are tested on (appendix D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import ClassVar

from pydantic import Field, FilePath, PositiveInt

from typedrag.builders.builder import Builder, Built, OpenLM
from typedrag.builders.revelator import role_row
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.datasets.dataset import load_dataset, text_hash
from typedrag.datasets.open_domain import read_single_hop
from typedrag.runs.work import Stages
from typedrag.text.words import question_key


class RouterTest(Builder):
    """Draw as many questions of each route, and measure routers on them by `typedrag research revelator evaluate`.

    Of a dataset, those of its test split are drawn from; an LM is not needed.
    """

    name: ClassVar[str] = "router-test"
    counted: ClassVar[tuple[str, ...]] = ("route", "origin")
    asks_lm: ClassVar[bool] = False

    straightforward: tuple[FilePath, ...] = Field(min_length=1)
    """CommonsenseQA's dev_rand_split.jsonl, and its test file. Repeatable."""
    single_step: tuple[str, ...] = Field(min_length=1)
    """A dataset of single-step questions, such as squad=dev-v1.1.json. Repeatable."""
    complex: tuple[str, ...] = Field(min_length=1)
    """A dataset of complex questions, such as musique=FOLDER. Repeatable."""
    compound: FilePath
    """The output of datasets build compound; its test subset is used."""
    each: PositiveInt = 1_500
    """Questions of each route (HANRAG, appendix D)."""
    seed: int = 0
    """Random seed."""

    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        """See `Builder.build`."""
        easy = [single.question for path in self.straightforward for single in read_single_hop(path)]
        questions = {
            Route.STRAIGHTFORWARD: {"straightforward": easy},
            Route.SINGLE_STEP: dict(map(_tested, self.single_step)),
            Route.COMPOUND: dict([_tested(f"compound={self.compound}")]),
            Route.COMPLEX: dict(map(_tested, self.complex)),
        }
        return build_router_test(questions, each=self.each, seed=self.seed)


def _tested(named: str) -> tuple[str, list[str]]:
    """The name of a dataset and the questions of its test split, from NAME or NAME=PATH."""
    name, _, path = named.partition("=")
    dataset = load_dataset(name, path or None)
    return name, [example.question for example in dataset.split(dataset.default_split)]


def build_router_test(questions: Mapping[Route, Mapping[str, Sequence[str]]], *, each: int, seed: int = 0) -> Built:
    """Draw the questions, as rows of dataset `revelator` whose part is test.

    Args:
        questions: By their route, and by the origin that equal shares of a route come from. An origin with fewer than
            its share gives all that it has.
        each: Questions of each route.
        seed: The seed of the draw.
    """
    built = Built()
    came: set[str] = set()
    for route, origins in questions.items():
        for number, (origin, texts) in enumerate(origins.items()):
            share = each // len(origins) + (number < each % len(origins))
            new = {key: text for text in texts if (key := question_key(text)) not in came}
            built.left_out["it came before"] += len(texts) - len(new)
            came |= new.keys()
            for text in nsmallest(share, new.values(), key=lambda text: text_hash(text, seed)):
                row = role_row(RevelatorRole.ROUTER, origin, text, route=route.value)
                built.rows.append({**row, "part": "test"})
    return built
