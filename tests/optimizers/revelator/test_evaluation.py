import json
from dataclasses import asdict

import pytest

from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole
from typedrag.optimizers.revelator import evaluate_roles
from typedrag.programs import HANRAG, Options


def test_each_role_is_measured_by_its_own_metric(dataset, program):
    with scripted({s.JudgeEnding: {"ending": False}, s.RouteQuestion: {"route": "single-step"}}):
        scores = {score.role: score for score in evaluate_roles(dataset, program, part="all")}
    assert set(scores) == set(RevelatorRole)
    ending = scores[RevelatorRole.ENDING]  # three of five do not end: two hops of three, one of two
    assert (ending.n, ending.failed, ending.score) == (5, 0, 0.6)
    assert (ending.interval.low, ending.interval.high) == (None, None)  # of two questions
    assert ending.majority == 0.6 and ending.confusion.mistakes() == [("True", "False", 2)]
    router = scores[RevelatorRole.ROUTER]
    assert router.measures["macro_f1"] < router.score and router.majority == router.score
    decomposer = scores[RevelatorRole.DECOMPOSER]
    assert decomposer.confusion is None and decomposer.score == 1.0
    json.dumps([asdict(score) for score in scores.values()])


def test_a_reply_that_cannot_be_read_is_wrong_and_counted(dataset):
    program = HANRAG(Numbered(), options=Options(retries=0))
    with scripted({s.JudgeEnding: "torn"}):
        [score] = evaluate_roles(dataset, program, roles=[RevelatorRole.ENDING], part="all")
    assert (score.failed, score.score, score.confusion) == (5, 0.0, None)
    assert score.majority == 0.6  # of the rows, not of the replies


def test_rows_are_limited_and_parts_named(dataset, program):
    with scripted():
        [score] = evaluate_roles(dataset, program, roles=[RevelatorRole.RELEVANCE], part="all", limit=3)
    assert score.n == 3
    with pytest.raises(InputError, match="no split is called"):
        evaluate_roles(dataset, program, part="dev")
