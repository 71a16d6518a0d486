"""What clients of the servers rely on: paths, events of streams, and tools."""

import asyncio
import itertools
import json
from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import httpx
from mcp import Client

from tests.contract.sample import sample_index
from tests.lm_server import lm_server
from tests.serving.server import program, served
from typedrag.retrieval import BM25Retriever
from typedrag.serving.app import create_app
from typedrag.serving.index_server import IndexSettings, SearchService, create_index_app
from typedrag.serving.service import Service
from typedrag.serving.settings import Settings

QUESTION = "Why does homemade bread turn out dense and heavy?"


def openapi() -> dict[str, Any]:
    """The OpenAPI documents of `typedrag serve` and `typedrag index serve`, without version and titles."""
    documents = {
        "serve": create_app(Service([], Settings())).openapi(),
        "index serve": create_index_app(SearchService(Mock(), IndexSettings())).openapi(),
    }
    return {name: _without_titles({**document, "info": {}}) for name, document in documents.items()}


def streams() -> dict[str, Any]:
    """The events of an answer in all streams, each with the names of its fields, and the tools for agents."""
    chat = {"messages": [{"role": "user", "content": QUESTION}], "stream_options": {"include_usage": True}}
    accept = {"Accept": "text/event-stream"}
    with (
        sample_index() as index,
        lm_server() as lm,
        served(program(lm, "typed_rag", BM25Retriever(index))) as server,
    ):
        events = server.client.post("/v1/answer", json={"question": QUESTION}, headers=accept)
        chunks = server.client.post("/v1/chat/completions", json={**chat, "stream": True})
        parts = server.client.post("/v1/responses", json={"input": QUESTION, "stream": True})
        tools = asyncio.run(_tools(f"{server.url}/mcp"))
    streamed = {"/v1/answer": events, "/v1/chat/completions": chunks, "/v1/responses": parts}
    return {**{path: _events(reply) for path, reply in streamed.items()}, "/mcp": tools}


async def _tools(url: str) -> dict[str, Any]:
    async with Client(url, mode="auto") as client:
        tools = (await client.list_tools()).tools
    return {
        tool.name: {
            "about": " ".join((tool.description or "").split()),
            "input": _without_titles(tool.input_schema),
            "output": _without_titles(tool.output_schema),
        }
        for tool in tools
    }


def _events(reply: httpx.Response) -> list[str]:
    """The events in order, where as many as are alike are one."""
    reply.raise_for_status()
    lines = []
    for block in reply.text.strip().split("\n\n"):
        *name, data = block.split("\n")
        values = data.removeprefix("data: ")
        fields = values if values == "[DONE]" else ", ".join(sorted(set(_fields(json.loads(values)))))
        lines.append(" ".join([*(part.removeprefix("event: ") for part in name), fields]))
    return [line for line, _ in itertools.groupby(lines)]


def _fields(value: Any, path: str = "") -> Iterable[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _fields(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from _fields(item, f"{path}.*")
    else:
        yield path


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if isinstance(schema, dict):
        return {n: _without_titles(v) for n, v in schema.items() if n != "title" or not isinstance(v, str)}
    return schema
