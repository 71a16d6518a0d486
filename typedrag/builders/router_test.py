"""The test set of HANRAG's router: as many questions of each route, from datasets that are tested on (appendix D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from typedrag.builders.revelator import role_row
from typedrag.builders.rows import Built
from typedrag.datasets.dataset import hash_of
from typedrag.question_types import RevelatorRole, Route
from typedrag.texts.words import question_key

EACH = 1_500
"""Questions of each route (HANRAG, appendix D)."""


def build_router_test(
    questions: Mapping[Route, Mapping[str, Sequence[str]]], *, each: int = EACH, seed: int = 0
) -> Built:
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
            for text in nsmallest(share, new.values(), key=lambda text: hash_of(text, seed)):
                row = role_row(RevelatorRole.ROUTER, origin, text, route=route.value)
                built.rows.append({**row, "part": "test"})
    return built
