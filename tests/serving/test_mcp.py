import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from tests.lm_server import Call, LMServer, lm_server
from tests.serving.server import Server, program, served
from typedrag.cli.main import cli

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
    said = [message for _, message in told]
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
    assert len(found.structured_content["passages"]) == 2
    assert found.structured_content["passages"][0]["text"]
    assert len(most.structured_content["passages"]) == 5


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
        end = time.monotonic() + 10
        while server.under_way and time.monotonic() < end:
            time.sleep(0.05)
        assert server.under_way == 0
        assert len(lm.calls) == 1


def test_a_server_without_keys_answers_to_local_names_alone():
    asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Host": "evil.example:80", "Accept": "application/json, text/event-stream"}
    with lm_server() as lm, served(program(lm)) as server:
        assert httpx.post(at(server), json=asked, headers=headers).status_code == 421
    with lm_server() as lm, served(program(lm), no_keys=True) as server:
        assert httpx.post(at(server), json=asked, headers=headers).status_code == 200


def test_an_agent_asks_over_stdio(sample_index):
    with lm_server(reply=reply) as lm:
        check_answer(call(over_stdio(lm, sample_index), "ask", question=QUESTION))


def test_nothing_but_the_protocol_is_on_stdout(sample_index):
    """A variable for spans over HTTP is no reason to refuse an agent."""
    spans = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with lm_server() as lm:
        started = over_stdio(lm, sample_index, JAVA_TOOL_OPTIONS="-Xlog:gc+init:stdout", **spans)
        said, out, err = talk(started, "search", query="bread")
    assert [message["id"] for message in said] == [1, 2]
    assert said[1]["result"]["structuredContent"]["passages"]
    assert out == ""
    assert "typedrag answers an agent by typed_rag" in err
    assert "[gc,init]" in err  # Java writes to stdout, whatever Python's is


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
