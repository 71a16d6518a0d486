import json
from typing import Any

import pytest

from typedrag.core.records import NOT_FROM_COLLECTION, NOT_IN_COLLECTION, Answer, Answered, Passage

YEAST = Passage("p1", "Old yeast makes little gas.")


def _stored(**fields: Any) -> dict[str, Any]:
    return json.loads(json.dumps(Answer("Why?", "Old yeast.", **fields).to_dict()))


def test_an_answer_is_read_as_it_was_written():
    answer = Answer("Why?", "Old yeast.", passages=(YEAST,), citations=("p1",), answered=Answered.NOTHING)
    assert Answer.from_dict(json.loads(json.dumps(answer.to_dict()))) == answer


@pytest.mark.parametrize(("passages", "answered"), [((YEAST,), Answered.PASSAGES), ((), Answered.KNOWLEDGE)])
def test_an_answer_of_before_tells_by_its_passages_what_it_was_answered_from(passages, answered):
    stored = {k: v for k, v in _stored(passages=passages).items() if k not in ("answered", "grounded")}
    assert Answer.from_dict(stored).answered is answered


@pytest.mark.parametrize(
    ("answered", "citations", "grounded"),
    [
        (Answered.PASSAGES, ("p1",), True),
        (Answered.PASSAGES, (), False),
        (Answered.KNOWLEDGE, (), False),
        (Answered.NOTHING, (), False),
    ],
)
def test_only_what_cites_a_passage_is_grounded(answered, citations, grounded):
    assert _stored(passages=(YEAST,), citations=citations, answered=answered)["grounded"] is grounded


def test_what_the_lm_knows_is_marked_for_a_reader():
    assert Answer("Why?", "So.", answered=Answered.KNOWLEDGE).marked == f"{NOT_FROM_COLLECTION}\nSo."
    assert Answer("Why?", "So.", answered=Answered.PASSAGES).marked == "So."
    assert Answer("Why?", NOT_IN_COLLECTION, answered=Answered.NOTHING).marked == NOT_IN_COLLECTION
