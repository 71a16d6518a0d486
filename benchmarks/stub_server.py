"""An OpenAI-compatible server without an LM, which takes a fixed time for each call.

A reply is the smallest instance of the requested JSON schema, with words of the
prompt's question in it, so that sub-queries keep to the topic. At most `--concurrency` calls are
served at once; the others wait, as at a real server. It is a process of its own:

    python -m benchmarks.stub_server --delay 0.2
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

MODEL = "stub"
ANSWER = "The passages name several points that bear on this, and each of them is said here once. " * 3
_QUESTION = re.compile(r"\[\[ ## (?:question|remark) ## \]\]\n(.*?)(?:\n\n|\Z)", re.DOTALL)


class Instances:
    """Instances of a JSON schema about a question.

    Args:
        schema: The schema of the reply.
        question: The question whose words are used.
        items: The length of lists, within their limits.
    """

    def __init__(self, schema: dict[str, Any], question: str, items: int) -> None:
        self._definitions = schema.get("$defs", {})
        self._schema = schema
        self._topic = re.sub(r"[?？؟\s]+", " ", question).strip()[:100]
        self._words = [word for word in re.findall(r"\w+", question) if len(word) > 3] or ["topic"]
        self._items = items

    def make(self) -> Any:
        """A valid instance."""
        return self._value(self._schema, 0)

    def _value(self, schema: dict[str, Any], number: int) -> Any:
        if "$ref" in schema:
            return self._value(self._definitions[schema["$ref"].rsplit("/", 1)[-1]], number)
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                return {name: self._value(field, number) for name, field in schema.get("properties", {}).items()}
            case "array":
                length = min(max(self._items, schema.get("minItems", 0)), schema.get("maxItems", self._items))
                return [self._value(schema["items"], i) for i in range(length)]
            case "boolean":
                return True
            case "integer" | "number":
                return min(schema.get("minimum", 0) + number, schema.get("maximum", sys.maxsize))
            case "string":
                return self._text(schema.get("pattern"), number)[: schema.get("maxLength")]
        raise ValueError(f"no instance of schema {schema}")

    def _text(self, pattern: str | None, number: int) -> str:
        if pattern is None:
            return ANSWER
        word = self._words[number % len(self._words)]
        candidates = (word, f"What is known about part {number + 1} of this: {self._topic}?")
        return next(text for text in candidates if re.search(pattern, text))


class _Service:
    def __init__(self, delay: float, concurrency: int, items: int) -> None:
        self._delay = delay
        self._slots: AbstractAsyncContextManager[Any] = asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        self._items = items
        self._calls = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection, one after the other."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                reply = await self._reply(head.split(b" ", 2)[1].decode(), body)
                writer.write(_stream(reply) if b'"stream": true' in body or b'"stream":true' in body else _http(reply))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    async def _reply(self, path: str, body: bytes) -> dict[str, Any]:
        if path.endswith("/chat/completions"):
            async with self._slots:
                self._calls += 1
                loop = asyncio.get_running_loop()
                done = loop.time() + self._delay
                reply = self._complete(json.loads(body))
                await asyncio.sleep(done - loop.time())
            return reply
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return {"calls": self._calls}

    def _complete(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = request["messages"][-1]["content"]
        text = prompt if isinstance(prompt, str) else "".join(part["text"] for part in prompt)
        question = (_QUESTION.findall(text) or [text])[-1]
        schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
        content = json.dumps(Instances(schema, question, self._items).make()) if schema else ANSWER
        tokens = {"prompt_tokens": len(body_text(request)) // 4, "completion_tokens": len(content) // 4}
        return {
            "id": f"stub-{self._calls}",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}},
            ],
            "usage": {**tokens, "total_tokens": sum(tokens.values())},
        }


def body_text(request: dict[str, Any]) -> str:
    """The text of all messages of a request."""
    return "".join(str(message["content"]) for message in request["messages"])


def _http(reply: dict[str, Any]) -> bytes:
    body = json.dumps(reply).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _stream(reply: dict[str, Any]) -> bytes:
    """A reply as a stream of pieces of 32 characters, all sent at once."""
    content = reply["choices"][0]["message"]["content"]
    deltas: list[dict[str, Any]] = [{"content": content[at : at + 32]} for at in range(0, len(content), 32)]
    choices: list[list[dict[str, Any]]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    chunks: list[dict[str, Any]] = [{"choices": choice} for choice in choices]
    chunks.append({"choices": [], "usage": reply["usage"]})
    same: dict[str, Any] = {"id": reply["id"], "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    body = "".join(f"data: {json.dumps({**same, **chunk})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@dataclass(frozen=True)
class StubServer:
    """A running stub server."""

    api_base: str

    def calls(self) -> int:
        """The number of LM calls that it has begun to serve."""
        with urllib.request.urlopen(f"{self.api_base}/stats") as reply:
            return int(json.load(reply)["calls"])


@contextmanager
def stub_server(*, delay: float, concurrency: int = 0, items: int = 5) -> Iterator[StubServer]:
    """Run a stub server in a process of its own; see the module's options."""
    options = ["--delay", str(delay), "--concurrency", str(concurrency), "--items", str(items)]
    process = subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield StubServer(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait()


async def serve(port: int, delay: float, concurrency: int, items: int) -> None:
    """Serve until killed; prints the address first."""
    service = _Service(delay, concurrency, items)
    server = await asyncio.start_server(service.connected, "127.0.0.1", port, limit=2**24, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes any that is free (default)")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds for each call (default: 0.2)")
    parser.add_argument("--concurrency", type=int, default=0, help="calls served at once; 0 is no limit (default)")
    parser.add_argument("--items", type=int, default=5, help="length of lists in replies (default: 5)")
    asyncio.run(serve(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
