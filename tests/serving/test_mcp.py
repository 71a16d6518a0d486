import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.lm_server import Call, LMServer, lm_server
from tests.serving.server import Server, program, served
from tests.serving.test_guard import bearer, keyed
from typedrag.cli.main import cli
from typedrag.serving import mcp as serving

QUESTION = "Why does homemade bread turn out dense and heavy?"
YEAST = "Old or little yeast makes little gas."
ANSWER = f"There are several causes. {YEAST}"
ROOT = Path(__file__).parents[2]


def reply(call: Call) -> dict:
    said = {"citations": [1, 2], "answer": ANSWER}
    return {name: said[name] for name in call.wanted if name in said}


def call(where: str | StdioServerParameters, tool: str, mode: str = "auto", **arguments) -> CallToolResult:
    """What a tool gives, with what it told on the way as `meta`."""

    async def asking() -> CallToolResult:
        told: list[tuple[float, str]] = []

        async def hear(progress: float, _: float | None, message: str | None) -> None:
            told.append((progress, message or ""))

        async with Client(where, mode=mode) as client:
            result = await client.call_tool(tool, arguments, progress_callback=hear)
        return result.model_copy(update={"meta": {"told": told}})

    return asyncio.run(asking())


def at(server: Server) -> str:
    return f"{server.url}/mcp"


def over_stdio(
    lm: LMServer, index: Path, *arguments: str, program: str = "typed_rag", **environment: str
) -> StdioServerParameters:
    given = ["--program", program, "--index", str(index), "--lm", "vllm:stub", "--api-base", lm.api_base]
    environment = {"TYPEDRAG_CACHE": os.environ["TYPEDRAG_CACHE"], "PYTHONPATH": str(ROOT), **environment}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "typedrag", "mcp", *given, *arguments], env=environment, cwd=ROOT
    )


def talk(started: StdioServerParameters, tool: str, **arguments: str) -> tuple[list[dict], str, str]:
    """The replies to a greeting and a tool's call, then what else is on stdout and stderr when the agent has left."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ]
    process = subprocess.Popen(
        [started.command, *started.args],
        env={**os.environ, **(started.env or {})},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    for line in lines:
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
    said = [json.loads(process.stdout.readline()) for _ in range(2)]
    out, err = process.communicate(timeout=60)  # the agent leaves: stdin is closed
    assert process.returncode == 0, err
    return said, out, err


def fail(started: StdioServerParameters) -> subprocess.CompletedProcess[str]:
    """A command that ends before an agent can ask it."""
    environment = {**os.environ, **(started.env or {})}
    return subprocess.run(
        [started.command, *started.args], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def check_answer(result: CallToolResult) -> None:
    assert not result.is_error
    made = result.structured_content
    assert (made["answer"], made["answered"], made["question_type"]) == (ANSWER, "passages", "reason")
    assert (made["grounded"], made["program"], made["fallback"]) == (True, "typed_rag", "")
    texts = {passage["id"]: passage["text"] for passage in made["passages"]}
    assert made["citations"] and all(texts[citation["passage_id"]] for citation in made["citations"])
    assert YEAST in {ANSWER[citation["start"] : citation["end"]] for citation in made["citations"]}
    assert result.content[0].text.startswith(f"{ANSWER}\n\nSources:\n[1] ")
    told = result.meta["told"]
    assert [progress for progress, _ in told] == list(range(1, len(told) + 1))
    said = [message for _, message in told if not message.startswith("waiting")]  # while programs are opened
    assert said[0] == "question type: reason"
    assert any(message.startswith("searching: ") for message in said)
    assert "writing the answer" in said


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_asks_over_http(sample_retriever, mode):
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        check_answer(call(at(server), "ask", mode, question=QUESTION))


def test_an_agent_searches_over_http(sample_retriever):
    with lm_server() as lm, served(program(lm), program(lm, "rag", sample_retriever)) as server:
        found = call(at(server), "search", query="dense bread yeast", k=2)
        most = call(at(server), "search", query="dense bread yeast")
        assert not lm.calls
    results = found.structured_content["results"]
    assert len(results) == 2 and set(results[0]) == {"id", "title", "text", "url"} and all(results[0].values())
    assert json.loads(found.content[0].text) == found.structured_content
    assert len(most.structured_content["results"]) == 5


def test_an_agent_fetches_what_it_has_found(sample_retriever):
    """As ChatGPT's deep research does: `search` by a query alone, then `fetch` by each id."""
    with lm_server() as lm, served(program(lm), program(lm, "rag", sample_retriever)) as server:
        [first, *_] = call(at(server), "search", query="dense bread yeast").structured_content["results"]
        fetched = call(at(server), "fetch", id=first["id"])
        missing = call(at(server), "fetch", id="none")
        half = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "fetch", "arguments": {"id": "\ud800"}},
        }
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        broken = httpx.post(at(server), content=json.dumps(half), headers=headers)
        assert not lm.calls
    assert fetched.structured_content == {**first, "metadata": {}}
    assert json.loads(fetched.content[0].text) == fetched.structured_content
    assert first["url"].startswith("urn:typedrag:passage:")
    assert broken.status_code in (200, 400) and "server failed" not in broken.text
    assert missing.is_error and "No passage of the collection has this id" in missing.content[0].text


def test_an_agent_says_the_type_of_its_question(sample_retriever):
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        made = call(at(server), "ask", question="bread yeast", question_type="comparison")
        refused = call(at(server), "ask", question="bread yeast", question_type="quiz")
    assert made.structured_content["question_type"] == "comparison" and not made.structured_content["type_unsure"]
    assert "question type: comparison" in [message for _, message in made.meta["told"]]
    assert refused.is_error and "question_type" in refused.content[0].text


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("ask", {"question": " "}, "The question is empty"),
        ("ask", {"question": "x" * 5000}, "4,000 are allowed"),
        ("ask", {"question": "Why?", "program": "other"}, "No program is served by this name"),
        ("ask", {}, "question"),
        ("search", {"query": "bread"}, "No program is served that searches"),
        ("search", {"query": "bread", "k": 51}, "less than or equal to 50"),
        ("fetch", {"id": "bread"}, "No program is served that searches"),
    ],
)
def test_bad_calls_are_errors_that_say_what_is_wrong(tool, arguments, said):
    with lm_server() as lm, served(program(lm)) as server:
        result = call(at(server), tool, **arguments)
        assert result.is_error and said in result.content[0].text
        assert not lm.calls


def test_an_lm_that_is_gone_is_told_without_its_address(sample_retriever):
    with lm_server() as lm:
        gone = program(lm, "rag", sample_retriever)
    with served(gone) as server:
        result = call(at(server), "ask", question=QUESTION)
    assert result.is_error and "The LM cannot be used now" in result.content[0].text
    assert "127.0.0.1" not in result.content[0].text


def test_an_agent_that_gives_up_ends_the_question(sample_retriever):
    async def give_up(where: str) -> None:
        async with Client(where) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call_tool("ask", {"question": QUESTION}), 0.5)

    with lm_server(seconds=1.5) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        asyncio.run(give_up(at(server)))
        end = time.monotonic() + 60
        while server.under_way and time.monotonic() < end:
            time.sleep(0.05)
        assert server.under_way == 0
        assert len(lm.calls) == 1


@pytest.mark.parametrize("access", ["here alone", "no keys", "keys"])
@pytest.mark.parametrize(
    ("named", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000", "Origin": "http://localhost:3000"}, 200),
        ({"Host": "[::1]:80", "Origin": "http://127.0.0.1"}, 200),
        ({"Origin": "https://good.example"}, 200),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://good.example.evil.example"}, 403),
        ({"Origin": "http://good.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_pages_from_elsewhere_and_strangers_names_are_refused(access, named, status, tmp_path):
    """A server that listens here alone knows its names; another may be reached by any. Both refuse pages."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream", **named}
    origins = {"origins": ("https://good.example",)}
    if access != "here alone" and status == 421:
        status = 403 if "Origin" in named else 200
    with contextlib.ExitStack() as stack:
        if access == "keys":
            server, _, key = stack.enter_context(keyed(tmp_path, **origins))
            assert httpx.post(at(server), json=asked, headers=headers).status_code == (401 if status == 200 else status)
            headers |= bearer(key)
        else:
            lm = stack.enter_context(lm_server())
            server = stack.enter_context(served(program(lm), no_keys=access == "no keys", **origins))
        replied = httpx.post(at(server), json=asked, headers=headers)
    assert replied.status_code == status
    if status != 200:
        assert replied.json()["error"]["code"] == {421: "unknown_host", 403: "unknown_origin"}[status]


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
def test_an_agent_sends_its_key_as_a_header(header, tmp_path):
    """As Claude Code, VS Code and Cursor do, which take headers in their settings."""

    async def list_tools(url: str, headers: dict[str, str]) -> set[str]:
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return {tool.name for tool in (await client.list_tools()).tools}

    with keyed(tmp_path) as (server, _, key):
        value = f"Bearer {key}" if header == "Authorization" else key
        assert asyncio.run(list_tools(at(server), {header: value})) == {"ask", "search", "fetch"}
        with pytest.raises(ExceptionGroup):
            asyncio.run(list_tools(at(server), {header: f"{value}x"}))


def test_the_settings_of_clients_in_the_docs_hold_the_header():
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    settings = [json.loads(text) for text in re.findall(r"`\w*[./\w]+\.json`: `(\{.*?\})`", page)]
    desktop, vs_code, cursor = (each.get("servers") or each["mcpServers"] for each in settings)
    assert desktop["bread"]["args"][-1] == "Authorization:${AUTHORIZATION}"  # a space would part it on Windows
    assert desktop["bread"]["env"]["AUTHORIZATION"].startswith("Bearer ")
    for client in (vs_code, cursor):
        assert client["bread"]["headers"]["Authorization"].startswith("Bearer ${")
        assert client["bread"]["url"].endswith("/mcp")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_hears_something_while_the_lm_is_silent(mode, monkeypatch):
    monkeypatch.setattr(serving, "_TELL_SECONDS", 0.1)
    with lm_server(seconds=1) as lm, served(program(lm)) as server:
        told = call(at(server), "ask", mode, question=QUESTION).meta["told"]
    assert len(told) >= 5
    assert [progress for progress, _ in told] == list(range(1, len(told) + 1))
    assert "asking what the LM knows (0 s)" in [message for _, message in told]


def test_what_a_client_is_told_again_comes_every_ten_seconds_at_least():
    assert serving._TELL_SECONDS < 10


def test_an_agent_asks_over_stdio(sample_index):
    with lm_server(reply=reply) as lm:
        check_answer(call(over_stdio(lm, sample_index), "ask", question=QUESTION))


def test_nothing_but_the_protocol_is_on_stdout(sample_index):
    """A variable for spans over HTTP is no reason to refuse an agent."""
    spans = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with lm_server() as lm:
        started = over_stdio(lm, sample_index, JAVA_TOOL_OPTIONS="-XX:+PrintFlagsFinal", **spans)
        said, out, err = talk(started, "search", query="bread")
    assert [message["id"] for message in said] == [1, 2]
    assert said[1]["result"]["structuredContent"]["results"]
    assert out == ""
    assert "typedrag answers an agent by typed_rag" in err
    assert "[Global flags]" in err  # Java writes to stdout, whatever Python's is


def test_an_agent_is_greeted_while_programs_are_opened(sample_index, tmp_path):
    """`initialize` and the list of tools do not wait for an index server that takes its time; what it calls does."""

    async def run(silent: socket.socket, started: StdioServerParameters) -> str:
        async with stdio_client(started) as streams, ClientSession(*streams) as session:
            async with asyncio.timeout(50):  # the index server is waited for longer
                await session.initialize()
                await session.list_tools()
            silent.close()
            return (await session.call_tool("search", {"query": "bread"})).content[0].text

    with socket.create_server(("127.0.0.1", 0)) as silent, lm_server() as lm:  # it never replies
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = over_stdio(lm, sample_index, "--retriever", address)
        place = started.args.index("--index")
        del started.args[place : place + 2]
        assert f"the index server at {address} cannot be reached" in asyncio.run(run(silent, started))


def test_a_program_that_cannot_be_opened_is_said_in_a_line(sample_index, tmp_path):
    with lm_server() as lm:
        done = fail(over_stdio(lm, sample_index, "--program", str(tmp_path / "none")))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize("limit", ["feedback=feedback.sqlite", "rate=5", "page=false"])
def test_limits_of_http_are_refused_over_stdio(limit):
    done = CliRunner().invoke(cli, ["mcp", "--limit", limit])
    name = limit.partition("=")[0]
    assert done.exit_code == 2
    assert f"--{name.replace('_', '-')} is one of typedrag serve" in done.output
    assert "Leave it out" in done.output and "running, queue, deadline" in done.output
