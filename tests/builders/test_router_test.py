from __future__ import annotations

from collections import Counter

from typedrag.builders import build_router_test
from typedrag.core.question_types import Route


def asked(route: str, count: int) -> list[str]:
    return [f"What is {route} {n}?" for n in range(count)]


def test_each_route_has_as_many_questions_and_each_of_its_origins_an_equal_share():
    questions = {
        Route.SINGLE_STEP: {name: asked(name, 50) for name in ("squad", "nq", "triviaqa")},
        Route.COMPLEX: {"musique": asked("musique", 50), "hotpotqa": asked("hotpotqa", 2)},
    }
    built = build_router_test(questions, each=10)
    assert Counter((r["route"], r["origin"]) for r in built.rows) == {
        ("single-step", "squad"): 4, ("single-step", "nq"): 3, ("single-step", "triviaqa"): 3,
        ("complex", "musique"): 5, ("complex", "hotpotqa"): 2,
    }  # fmt: skip
    assert {(r["role"], r["part"]) for r in built.rows} == {("router", "test")}
    assert build_router_test(questions, each=10) == built
    assert build_router_test(questions, each=10, seed=1) != built


def test_a_question_is_asked_once():
    built = build_router_test({Route.SINGLE_STEP: {"nq": ["who is it", "Who is it?"], "squad": ["Who is it?"]}}, each=9)
    assert len(built.rows) == 1
    assert built.left_out["it came before"] == 2
