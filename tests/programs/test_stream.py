import asyncio

import pytest

from tests.programs.ways import EACH_ANSWERED
from tests.scripted import scripted
from typedrag.core.errors import InputError
from typedrag.core.events import AnswerEnded, Classified, Event, Read, Searched, StepEnded, SubAnswered
from typedrag.core.records import Answer
from typedrag.programs import Program, build_program

QUESTION = "Why does homemade bread turn out dense and heavy?"
PARTS = ("Does cold dough make bread dense?", "Does too much flour make bread heavy?")


def events_of(program: Program, question: str = QUESTION) -> list[Event]:
    async def listen() -> list[Event]:
        return [event async for event in program.stream(question=question)]

    return asyncio.run(listen())


def test_the_way_to_an_answer_is_told_as_it_is_gone(sample_retriever):
    program = build_program("typed_rag", sample_retriever, options=EACH_ANSWERED)
    with scripted():
        events = events_of(program)
        answer = Answer.from_prediction(program(question=QUESTION))
    assert [e.question_type for e in events if isinstance(e, Classified)] == ["reason"]
    assert [e.queries for e in events if isinstance(e, Searched)] == [PARTS]
    assert {e.part for e in events if isinstance(e, Read)} == set(PARTS)
    assert sorted(e.sub_answer.sub_query for e in events if isinstance(e, SubAnswered)) == list(PARTS)
    steps = [e.step.name for e in events if isinstance(e, StepEnded) and not e.part]
    assert steps == [step.name for step in answer.steps]
    assert [e.step.name for e in events if isinstance(e, StepEnded) and e.part == PARTS[0]] == ["answer"]
    assert isinstance(events[-1], AnswerEnded)
    assert events[-1].answer.answer == answer.answer


@pytest.mark.parametrize(
    ("name", "routes"),
    [("hanrag", ["single-step"]), ("preqrag", ["single-document"]), ("adaptive_rag", ["single-step"]), ("rag", [])],
)
def test_routes_are_told(sample_retriever, name, routes):
    with scripted():
        events = events_of(build_program(name, sample_retriever))
    assert [e.route for e in events if isinstance(e, Classified)] == routes
    assert any(isinstance(e, Searched) for e in events)
    assert any(isinstance(e, Read) and e.passages for e in events)


def test_errors_are_raised_where_the_stream_is_read(sample_retriever):
    with scripted(), pytest.raises(InputError, match="the question is empty"):
        events_of(build_program("rag", sample_retriever), " ")
