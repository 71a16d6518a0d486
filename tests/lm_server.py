"""An OpenAI-compatible server within the tests, which remembers what it was asked."""

import json
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.stub_server import Instances

MODEL = "stub"
_QUESTION = re.compile(r"\[\[ ## question ## \]\]\n(.*?)(?:\n\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """What was asked: the question, and the output fields wanted, in a request."""

    question: str
    wanted: tuple[str, ...]
    request: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass
class LMServer:
    """Answers with the smallest instance of the schema asked for.

    Attributes:
        seconds: That a call takes.
        reply: Given a call, the fields of a reply, an HTTP status and a message or a body, or the text of a page. An
            answer from passages that says nothing of whether they hold one is answered.
        holds: Given a call whose reply has one field, how probable the LM holds each value of it.
        calls: Those begun, in order.
        done: Those whose reply was sent.
        keys: The authorizations of requests, those for the list of models too.
        traceparents: Those of the calls, by OpenTelemetry.
        left: Replies that were streamed to a client that went away.
        models: The status of its list of models, of which it has `no_models` perhaps, and says null.
        usage: What it says of tokens.
        finish_reason: Why it says that its replies have ended.
        retry_after: The header of a reply that is an HTTP status, if any.
        pause: Seconds between the pieces of a reply that is streamed.
        streams: Whether it streams replies; otherwise it sends them whole.
        cut: Pieces after which the connection is closed, in the first so many replies that are streamed.
    """

    seconds: float = 0.0
    reply: Callable[[Call], dict[str, Any] | tuple[int, str | dict[str, Any]] | str | None] = lambda call: None
    holds: Callable[[Call], dict[str, float]] | None = None
    calls: list[Call] = field(default_factory=list)
    done: list[Call] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    traceparents: list[str | None] = field(default_factory=list)
    usage: Any = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
    finish_reason: str = "stop"
    retry_after: str = ""
    pause: float = 0.0
    streams: bool = True
    cut: tuple[int, int] = (0, 0)
    left: int = 0
    models: int = 200
    no_models: bool = False
    api_base: str = ""
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, wanted: str) -> list[str]:
        """The questions of the calls that wanted this output field."""
        return [c.question for c in list(self.calls) if wanted in c.wanted]

    def serve(self, request: dict[str, Any]) -> tuple[int, dict[str, Any] | str]:
        plain: dict[str, Any] = {"json_schema": {"schema": {"type": "object", "properties": {}}}}
        schema = request.get("response_format", plain)["json_schema"]["schema"]
        question = (_QUESTION.findall(request["messages"][-1]["content"]) or [""])[-1].strip()
        call = Call(question, tuple(schema["properties"]), request)
        with self._lock:
            self.calls.append(call)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(self.seconds)
        said = self.reply(call) or Instances(schema, question, 2).make()
        with self._lock:
            self._at_once -= 1
            self.done.append(call)
        if isinstance(said, dict) and "answered" in call.wanted:
            said = {"answered": True, **said}
        if isinstance(said, str):
            return 200, said
        if isinstance(said, tuple):
            return said[0], said[1] if isinstance(said[1], dict) else {"error": {"message": said[1]}}
        usage = self.usage
        if held := self.holds and self.holds(call):
            said = {call.wanted[0]: max(held, key=lambda value: held[value])}
        message = {"role": "assistant", "content": json.dumps(said)}
        choices = [{"index": 0, "finish_reason": self.finish_reason, "message": message}]
        if held and request.get("logprobs"):
            choices[0]["logprobs"] = {"content": _tokens(json.dumps(said), held)}
        return 200, {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": choices,
            "usage": usage,
        }


def words(count: int) -> str:
    """So many words of four characters, none twice: what a reply repeats at its end is taken for a loop."""
    return " ".join(f"w{n:03}" for n in range(count))


def _tokens(text: str, held: dict[str, float]) -> list[dict[str, Any]]:
    """Three tokens, of which the second is the value, with its alternatives."""
    value = max(held, key=lambda value: held[value])
    before, _, after = text.partition(value)
    alternatives = [{"token": v, "logprob": math.log(p), "bytes": None} for v, p in held.items() if p]
    return [
        {"token": before, "logprob": 0.0, "bytes": None, "top_logprobs": []},
        {"token": value, "logprob": math.log(held[value]), "bytes": None, "top_logprobs": alternatives},
        {"token": after, "logprob": 0.0, "bytes": None, "top_logprobs": []},
    ]


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # with 5, of many clients at once some connect after a second or more


@contextmanager
def lm_server(**settings: Any) -> Iterator[LMServer]:
    """Serve within."""
    served = LMServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.keys.append(self.headers["Authorization"])
            listed = None if served.no_models else [{"id": MODEL, "object": "model"}]
            models = {"object": "list", "data": listed}
            self._send(*((served.models, models) if self.path.startswith("/v1/") else (404, {})))

        def do_POST(self) -> None:
            served.keys.append(self.headers["Authorization"])
            served.traceparents.append(self.headers["traceparent"])
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = served.serve(request)
            if request.get("stream") and served.streams and status == 200 and isinstance(reply, dict):
                self._stream(reply)
            else:
                self._send(status, reply)

        def _stream(self, reply: dict[str, Any]) -> None:
            """Send a reply in pieces of eight characters."""
            content = reply["choices"][0]["message"]["content"]
            pieces = [{"delta": {"content": content[at : at + 8]}} for at in range(0, len(content), 8)]
            chunks: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "finish_reason": None, **piece}]} for piece in pieces
            ]
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": served.finish_reason}]})
            chunks.append({"choices": [], "usage": reply["usage"]})
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            times, after = served.cut
            served.cut = (max(0, times - 1), after)
            try:
                for number, chunk in enumerate(chunks):
                    if times and number == after:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    said = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": MODEL, **chunk}
                    self.wfile.write(f"data: {json.dumps(said)}\n\n".encode())
                    self.wfile.flush()
                    time.sleep(served.pause)
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                served.left += 1  # the client has closed the connection

        def _send(self, status: int, reply: dict[str, Any] | str) -> None:
            body = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if status != 200 and served.retry_after:
                    self.send_header("Retry-After", served.retry_after)
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                pass  # the client was killed

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.api_base = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
