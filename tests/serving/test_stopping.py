import asyncio
import json
import signal
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.lm_server import LMServer, lm_server, words
from tests.serving.process import process
from tests.serving.test_connections import HEAD

ARGUMENTS = ("--program", "direct_lm")


def wait_for_calls(lm: LMServer, calls: int) -> None:
    until = time.monotonic() + 60
    while len(lm.calls) < calls:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_sigterm_loses_no_answer_under_way(tmp_path):
    go_on = threading.Event()
    with (
        lm_server(reply=lambda call: go_on.wait(60) and None) as lm,
        process(lm, tmp_path, *ARGUMENTS, "--queue", "64", "--running", "8") as server,
        ThreadPoolExecutor(32) as pool,
    ):
        replies = [pool.submit(server.ask, f"Why {n}?") for n in range(32)]
        wait_for_calls(lm, 8)
        while server.client.get("/metrics").text.find("typedrag_waiting 24.0") < 0:
            pass
        server.process.send_signal(signal.SIGTERM)
        while server.client.get("/readyz").status_code == 200:
            pass
        late = server.ask("Why so late?")
        go_on.set()
        assert [reply.result().status_code for reply in replies] == [200] * 32
        assert (late.status_code, late.json()["error"]["code"]) == (503, "stopping")
        assert server.wait() == 143
    assert server.said[-1] == "Terminated" and not [line for line in server.said if "Traceback" in line]


def test_sigterm_lets_a_stream_come_to_its_end(tmp_path):
    with (
        lm_server(reply=lambda call: {"answer": words(100)}, pause=0.02) as lm,
        process(lm, tmp_path, *ARGUMENTS) as server,
    ):
        request = {"json": {"question": "Why?"}, "headers": {"Accept": "text/event-stream"}}
        with server.client.stream("POST", "/v1/answer", **request) as reply:
            events = (line for line in reply.iter_lines() if line.startswith("event: "))
            assert "event: token" in events  # which goes on behind the first
            server.process.send_signal(signal.SIGTERM)
            *_, last = events
        assert last == "event: answer"
        assert server.wait() == 143


def test_what_outlasts_the_time_to_drain_is_told_that_the_server_stops(tmp_path):
    """Answers, streams of both kinds, what waits for its turn, and a request whose body has not come."""
    go_on, ask = threading.Event(), {"question": "Why?"}
    reply = lambda call: {"answer": words(1000)} if call.request.get("stream") else go_on.wait(60) and None  # noqa: E731
    chat = {"messages": [{"role": "user", "content": "Why so?"}], "stream": True}
    with (
        lm_server(reply=reply, pause=0.05) as lm,
        process(lm, tmp_path, *ARGUMENTS, "--drain", "2", "--running", "3") as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60) as slow,
        ThreadPoolExecutor(4) as pool,
    ):
        slow.sendall(HEAD + b"Content-Length: 10\r\n\r\n")
        events = {"Accept": "text/event-stream"}
        post = lambda path, body, headers={}: httpx.post(server.url + path, json=body, headers=headers, timeout=60)  # noqa: E731
        streams = [pool.submit(post, "/v1/answer", ask, events), pool.submit(post, "/v1/chat/completions", chat)]
        wholes = [pool.submit(post, "/v1/answer", {"question": "Why not?"})]
        wait_for_calls(lm, 3)
        wholes.append(pool.submit(post, "/v1/answer", {"question": "Why wait?"}))
        while "typedrag_waiting 1.0" not in server.client.get("/metrics").text:
            pass
        server.process.send_signal(signal.SIGTERM)
        replies = [whole.result() for whole in wholes]
        shown, chunks = (stream.result().text for stream in streams)
        head, _, body = slow.makefile("rb").read().partition(b"\r\n\r\n")
        go_on.set()
        assert server.wait() == 143
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in replies] == [(503, "stopping")] * 2
    assert all(int(reply.headers["Retry-After"]) >= 5 for reply in replies)
    assert "event: token" in shown
    last = shown.rpartition("event: error\ndata: ")[2]
    assert json.loads(last)["code"] == "stopping"
    error, done = chunks.removesuffix("\n\n").split("\n\n")[-2:]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "stopping" and done == "data: [DONE]"
    assert head.startswith(b"HTTP/1.1 503 ") and json.loads(body)["error"]["code"] == "stopping"
    lines = [json.loads(line) for line in server.said if '"message": "request"' in line]
    assert [line["error"] for line in lines] == ["stopping"] * 5
    assert not any("Traceback" in line for line in server.said)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_sigterm_lets_an_agent_have_its_answer_and_the_list_of_tools_behind_it(tmp_path, mode):
    """Of the last two protocols; an agent of the newest asks for the tools once it has the answer."""
    go_on = threading.Event()

    async def ask(url: str) -> tuple[CallToolResult, list[str]]:
        async with Client(f"{url}/mcp", mode=mode) as client:
            result = await client.call_tool("ask", {"question": "Why?"})
            return result, [tool.name for tool in (await client.list_tools()).tools]

    with (
        lm_server(reply=lambda call: go_on.wait(60) and None) as lm,
        process(lm, tmp_path, *ARGUMENTS) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        asking = pool.submit(lambda: asyncio.run(ask(server.url)))
        wait_for_calls(lm, 1)
        server.process.send_signal(signal.SIGTERM)
        while (stopping := server.client.get("/readyz")).status_code == 200:
            pass
        assert stopping.headers["Connection"] == "close"
        go_on.set()
        result, tools = asking.result()
        assert not result.is_error and result.structured_content["answer"]
        assert tools == ["ask", "search", "fetch"]
        assert server.wait() == 143


def test_ctrl_c_after_sigterm_loses_no_answer(tmp_path):
    go_on = threading.Event()
    with (
        lm_server(reply=lambda call: go_on.wait(60) and None) as lm,
        process(lm, tmp_path, *ARGUMENTS) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        reply = pool.submit(server.ask, "Why?")
        wait_for_calls(lm, 1)
        for number in (signal.SIGTERM, signal.SIGINT):  # as a supervisor and a terminal send them to a replica
            server.process.send_signal(number)
            time.sleep(0.5)
        go_on.set()
        assert reply.result().status_code == 200
        server.wait()


def test_ctrl_c_twice_waits_for_nobody(tmp_path):
    with lm_server(seconds=60) as lm, process(lm, tmp_path, *ARGUMENTS) as server, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(server.ask, "Why?")
        wait_for_calls(lm, 1)
        server.process.send_signal(signal.SIGINT)
        while server.client.get("/readyz").status_code == 200:
            pass
        begun = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 130
        assert time.monotonic() - begun < 20
        assert reply.exception() or reply.result().status_code >= 500
    assert server.said[-1] == "Interrupted" and not any("Traceback" in line for line in server.said)


def test_sigkill_leaves_nothing_half_written(tmp_path):
    with lm_server(seconds=0.05) as lm, process(lm, tmp_path, *ARGUMENTS) as server, ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(server.ask, f"Why {n}?") for n in range(80)]
        wait_for_calls(lm, 20)
        server.process.kill()
        server.process.wait()
        answered = {reply.result().json()["question"] for reply in replies if not reply.exception()}
    assert answered and not list(tmp_path.rglob("*.part"))
    for file in tmp_path.rglob("*.db"):
        with sqlite3.connect(file) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with lm_server() as lm, process(lm, tmp_path, *ARGUMENTS) as server:
        assert server.ask("Why 0?").status_code == 200
