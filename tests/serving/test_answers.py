import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.lm_server import LMServer, lm_server
from tests.serving.metrics import counted
from tests.serving.server import Server, program, served
from typedrag.lms.threads import THREADS
from typedrag.serving.service import Service
from typedrag.serving.settings import Settings

QUESTION = "Why does homemade bread turn out dense and heavy?"


def test_a_batch_has_an_answer_or_an_error_for_each(sample_retriever):
    with lm_server() as lm, served(program(lm), batch=3) as server:
        reply = server.client.post("/v1/answer/batch", json={"questions": ["Why?", "", "How?"]})
        too_many = server.client.post("/v1/answer/batch", json={"questions": ["Why?"] * 4})
    first, second, third = reply.json()["answers"]
    assert (first["answer"]["question"], third["answer"]["question"]) == ("Why?", "How?")
    assert second["error"]["code"] == "invalid_question"
    assert (too_many.status_code, too_many.json()["error"]["code"]) == (422, "batch_too_large")


def test_the_asker_says_the_type_of_a_question_or_of_each_in_a_batch(sample_retriever):
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever), program(lm)) as server:
        given = server.ask("bread yeast", question_type="comparison").json()
        found = server.ask("Why does bread rise?").json()
        other = server.ask("Why does bread rise?", question_type="debate").json()
        batch = server.client.post(
            "/v1/answer/batch",
            json={"questions": ["Why is bread dense?", {"question": "bread oven", "question_type": "instruction"}]},
        ).json()
        untyped = server.ask("Why?", program="direct_lm", question_type="reason")
        unknown = server.ask("Why?", question_type="quiz")
    assert [given["question_type"], found["question_type"], other["question_type"]] == [
        "comparison",
        "reason",
        "debate",
    ]
    assert [one["answer"]["question_type"] for one in batch["answers"]] == ["reason", "instruction"]
    assert not given["type_unsure"]
    assert (untyped.status_code, untyped.json()["error"]["code"]) == (422, "invalid_question")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": " "}, 422, "invalid_question"),
        ({"question": "x" * 5000}, 422, "invalid_question"),
        ({"question": "\ud800?"}, 422, "invalid_request"),
        ({"question": "Why?", "program": "other"}, 404, "no_such_program"),
        ({"query": "Why?"}, 422, "invalid_request"),
        ({"question": ["Why?"]}, 422, "invalid_request"),
    ],
)
def test_bad_requests_say_what_is_wrong(body, status, code):
    with lm_server() as lm, served(program(lm)) as server:
        reply = server.client.post("/v1/answer", content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
        assert not lm.calls


def test_the_same_question_at_the_same_time_is_answered_once():
    with lm_server(seconds=0.5) as lm, served(program(lm)) as server:
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(server.ask, ["Why?"] * 8))
        assert {reply.status_code for reply in replies} == {200}
        assert len(lm.calls) == 1


def test_more_than_may_wait_are_refused():
    with lm_server(seconds=0.5) as lm, served(program(lm), running=1, queue=1) as server:
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(server.ask, [f"Why {n}?" for n in range(4)]))
        assert sorted(reply.status_code for reply in replies) == [200, 200, 429, 429]
        refused = next(reply for reply in replies if reply.status_code == 429)
        assert int(refused.headers["Retry-After"]) >= 1


STREAMS = {
    "events": ("/v1/answer", {"question": "Why 2?"}),
    "chunks": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why 2?"}], "stream": True}),
    "mcp": (
        "/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask", "arguments": {"question": "Why 2?"}},
        },
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_is_closed_while_it_waits_frees_its_place(kind):
    path, body = STREAMS[kind]
    go_on = threading.Event()

    async def close_while_waiting(server: Server) -> list[httpx.Response]:
        async def until(running: int, waiting: int) -> None:
            async with asyncio.timeout(20):
                while [counted(server)(name) for name in ("running", "waiting")] != [running, waiting]:
                    await asyncio.sleep(0.02)

        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            running = asyncio.create_task(client.post("/v1/answer", json={"question": "Why 1?"}))
            await until(running=1, waiting=0)
            accept = {"Accept": "application/json, text/event-stream"}
            stream = asyncio.create_task(client.post(path, json=body, headers=accept))
            await until(running=1, waiting=1)
            stream.cancel()
            await until(running=1, waiting=0)
            taken = asyncio.create_task(client.post("/v1/answer", json={"question": "Why 3?"}))
            await until(running=1, waiting=1)
            go_on.set()
            return list(await asyncio.gather(running, taken))

    with lm_server(reply=lambda call: go_on.wait(60) and None) as lm, served(program(lm), running=1, queue=1) as server:
        try:
            replies = asyncio.run(close_while_waiting(server))
        finally:
            go_on.set()
    assert [reply.status_code for reply in replies] == [200, 200]
    assert [call.question for call in lm.calls] == ["Why 1?", "Why 3?"]


def test_as_many_run_at_once_as_the_limit_says():
    count = THREADS + 6
    together = threading.Barrier(count, timeout=60)

    with (
        lm_server(reply=lambda call: together.wait() and None) as lm,
        served(program(lm), running=count, lm_calls=count, rate=1000) as server,
    ):
        with ThreadPoolExecutor(count) as pool:
            replies = list(pool.map(server.ask, [f"Why {n}?" for n in range(count)]))
        assert {reply.status_code for reply in replies} == {200}


def test_a_deadline_ends_the_question_and_its_calls():
    with lm_server(seconds=3) as lm, served(program(lm), deadline=0.5) as server:
        begun = time.monotonic()
        reply = server.ask("Why?")
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline")
        assert time.monotonic() - begun < 2
        time.sleep(3.5)
        assert len(lm.calls) == 1
        assert server.under_way == 0


def leave_early(server: Server, question: str = "Why?") -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/answer", json={"question": question}, timeout=0.3)


def test_a_client_that_leaves_ends_the_question_and_its_calls(sample_retriever):
    with lm_server(seconds=1) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        leave_early(server, QUESTION)
        time.sleep(2)
        assert server.under_way == 0
        assert len(lm.calls) == 1


def test_one_that_stays_keeps_the_answer_of_one_that_left():
    with lm_server(seconds=1) as lm, served(program(lm)) as server:
        leaving = threading.Thread(target=leave_early, args=(server,))
        leaving.start()
        time.sleep(0.1)
        assert server.ask("Why?").status_code == 200
        leaving.join()
        assert len(lm.calls) == 1


def test_one_that_asks_just_as_the_last_other_leaves_has_an_answer():
    async def leave_and_ask(service: Service, lm: LMServer) -> None:
        leaving = asyncio.create_task(service.answer("Why?"))
        while not lm.calls:
            await asyncio.sleep(0.01)
        leaving.cancel()
        asking = asyncio.create_task(service.answer("Why?"))
        while len(lm.calls) < 2 and not asking.done():
            await asyncio.sleep(0.01)
        joining = asyncio.create_task(service.answer("Why?"))  # the first has ended by now, and taken only itself away
        assert (await asking).question == (await joining).question == "Why?"
        assert leaving.cancelled()

    with lm_server(seconds=2) as lm:
        service = Service([program(lm)], Settings(running=1))
        asyncio.run(leave_and_ask(service, lm))
        assert len(lm.calls) == 2
    assert service.admission.under_way == 0


def test_an_lm_that_is_gone_is_a_503_and_then_is_not_asked(sample_retriever):
    with lm_server() as lm:
        gone = program(lm)
    with served(gone, breaker_failures=2, breaker_seconds=60) as server:
        replies = [server.ask(f"Why {n}?") for n in range(3)]
    assert [reply.status_code for reply in replies] == [503] * 3
    assert [reply.json()["error"]["code"] for reply in replies] == ["lm_unavailable"] * 2 + ["unavailable"]
    assert int(replies[-1].headers["Retry-After"]) > 30
    assert lm.api_base not in replies[0].text
