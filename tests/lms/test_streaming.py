import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field

import dspy
import pytest

from tests.lm_server import MODEL, lm_server, words
from tests.programs.passages import Numbered
from typedrag import DirectLM, open_lm, use_lm
from typedrag.core.errors import CallFailed
from typedrag.core.events import AnswerEnded, AnswerStarted, AnswerToken, Event, Read
from typedrag.lms.client import AnswerText
from typedrag.programs import build_program

KEY = "sk-0123456789abcdef"


@dataclass
class Told:
    """What is told of a reply."""

    starts: int = 0
    pieces: list[str] = field(default_factory=list)

    def __call__(self, event: type[Event], text: str = "") -> None:
        if event is AnswerStarted:
            self.starts += 1
        else:
            self.pieces.append(text)


def told_of(reply: str, *, step: int = 3, lm: dspy.LM | None = None) -> Told:
    told = Told()
    text = AnswerText(lm, told, every=0)
    for at in range(0, len(reply), step):
        text.add(reply[at : at + step])
    return told


@pytest.mark.parametrize(
    "reply",
    [
        '{"citations": [1, 2], "answered": true, "answer": "It \\"rises\\":\\n yeast \\u00e9."}',
        '<think>{"answer": "No."}</think>{"answer": "It \\"rises\\":\\n yeast é."}',
        '[[ ## answered ## ]]\nTrue\n\n[[ ## answer ## ]]\nIt "rises":\n yeast é.\n\n[[ ## completed ## ]]',
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_answer_is_told_of_in_pieces_and_nothing_else(reply, step):
    told = told_of(reply, step=step)
    assert "".join(told.pieces) == 'It "rises":\n yeast é.'
    assert told.starts == 1
    assert step > 1 or len(told.pieces) > 10


@pytest.mark.parametrize(
    "reply",
    [
        '{"citations": [1], "answered": false, "answer": "I made this up."}',
        "[[ ## answered ## ]]\nFalse\n\n[[ ## answer ## ]]\nI made this up.",
        '{"sub_queries": ["Why?"]}',
        "no JSON at all",
        '{"answer": {"text": "an object"}}',
    ],
)
def test_nothing_is_told_where_there_is_no_answer(reply):
    assert told_of(reply) == Told()


def test_a_key_is_never_told_not_even_its_beginning():
    lm = dspy.LM("openai/x", api_key=KEY)
    told = told_of(f'{{"answer": "The key is {KEY}, he said. {words(20)}"}}', step=1, lm=lm)
    text = "".join(told.pieces)
    assert text.startswith("The key is [hidden], he said. w000")
    assert "sk-0" not in text


async def events_of(question: str) -> list[Event]:
    return [event async for event in DirectLM().stream(question=question)]


def lm_at(server, **settings):
    return open_lm(f"vllm:{MODEL}", api_base=server.api_base, cache=False, **settings)


def test_an_answer_comes_as_it_is_written():
    with lm_server(reply=lambda call: {"answer": words(40)}, pause=0.02) as server, use_lm(lm_at(server)):
        events = asyncio.run(events_of("Why?"))
    kinds = [type(event) for event in events]
    assert events[0] == Read(passages=())  # it is what the LM knows
    assert kinds[1] is AnswerStarted
    assert kinds.count(AnswerToken) > 5
    assert "".join(e.text for e in events if isinstance(e, AnswerToken)) == words(40)
    assert isinstance(events[-1], AnswerEnded)
    answer = events[-1].answer
    assert (answer.answer, answer.usage.prompt_tokens, answer.usage.completion_tokens) == (words(40), 100, 10)


def test_an_answer_that_is_cut_off_starts_anew():
    with lm_server(reply=lambda call: {"answer": words(40)}, cut=(1, 10), pause=0.02) as server, use_lm(lm_at(server)):
        events = asyncio.run(events_of("Why?"))
    starts = [at for at, event in enumerate(events) if isinstance(event, AnswerStarted)]
    assert len(starts) == 2
    assert "".join(e.text for e in events[starts[1] :] if isinstance(e, AnswerToken)) == words(40)
    assert events[-1].answer.answer == words(40)


def test_who_stops_listening_ends_the_call():
    async def first_token() -> str:
        async with aclosing(DirectLM().stream(question="Why?")) as events:
            async for event in events:
                if isinstance(event, AnswerToken):
                    return event.text
        return ""

    with lm_server(reply=lambda call: {"answer": words(200)}, pause=0.2) as server, use_lm(lm_at(server)):
        assert asyncio.run(first_token())
        begun = time.monotonic()
        while not server.left:
            assert time.monotonic() < begun + 20  # of 40 that the whole answer takes
            time.sleep(0.05)
        assert len(server.calls) == 1


def test_a_stream_that_is_always_cut_off_ends_in_an_error(monkeypatch):
    monkeypatch.setattr("typedrag.lms.client.RETRIES", 1)
    with lm_server(cut=(9, 3)) as server, use_lm(lm_at(server, num_retries=1)), pytest.raises(CallFailed):
        asyncio.run(events_of("Why?"))


# servers that do not stream


def refuses(word: str):
    """A server that refuses requests with a field, as FastAPI says it."""
    fault = {"detail": [{"loc": ["body", word], "msg": "extra fields not permitted", "type": "value_error.extra"}]}
    return lambda call: (422, fault) if word in call.request else {"answer": words(40)}


@pytest.mark.parametrize(
    "settings", [{"streams": False}, {"reply": refuses("stream")}, {"reply": refuses("stream_options")}]
)
def test_an_answer_comes_from_a_server_that_does_not_stream(settings):
    with lm_server(**{"reply": lambda call: {"answer": words(40)}, **settings}) as server:
        lm = lm_at(server)
        with use_lm(lm):
            first, second = asyncio.run(events_of("Why?")), asyncio.run(events_of("How?"))
        assert [events[-1].answer.answer for events in (first, second)] == [words(40)] * 2
        assert ["stream" in call.request for call in server.calls] == [True, False, False]


async def values_of(program: dspy.Module, question: str, **settings) -> list:
    return [value async for value in dspy.streamify(program, **settings)(question=question)]


@pytest.mark.parametrize(
    ("program", "question"), [("typed_rag", "Should zoos be banned?"), ("hanrag", "Why do volcanoes erupt?")]
)
def test_streamify_works(program, question):
    with lm_server() as server, use_lm(lm_at(server)):
        *chunks, prediction = asyncio.run(values_of(build_program(program, Numbered()), question))
        assert len(server.calls) == prediction.usage.lm_calls > 1
    assert chunks and prediction.answer


def test_a_listener_of_streamify_hears_the_answer():
    program = DirectLM()
    listener = dspy.streaming.StreamListener("answer", predict=program.answer_without_passages)
    with lm_server(reply=lambda call: {"answer": words(40)}) as server, use_lm(lm_at(server, adapter="json")):
        *heard, prediction = asyncio.run(values_of(program, "Why?", stream_listeners=[listener]))
    assert len(heard) > 20 and words(40) in "".join(piece.chunk for piece in heard)
    assert (prediction.answer, prediction.usage.prompt_tokens) == (words(40), 100)
