import asyncio
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.lm_server import LMServer, lm_server, words
from tests.serving.process import process

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
