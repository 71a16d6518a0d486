"""A server of embeddings by OpenAI's protocol, within the tests: each dimension counts one word."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.retrieval.encoders import WORDS
from typedrag.text.words import split_words


@dataclass
class EmbeddingsServer:
    """Remembers what it was asked.

    Attributes:
        refusal: An HTTP status and a message, instead of embeddings.
        asked: The bodies of requests.
        keys: Their authorizations.
    """

    refusal: tuple[int, str] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    api_base: str = ""

    def reply(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body of a reply."""
        self.asked.append(request)
        if self.refusal:
            status, message = self.refusal
            return status, {"error": {"message": message, "type": "refused", "code": status}}
        rows = [[2.0 * split_words(text).count(word) for word in WORDS] + [0.1] for text in request["input"]]
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, {"object": "list", "data": data, "model": request["model"], "usage": usage}


@contextmanager
def embeddings_server(**settings: Any) -> Iterator[EmbeddingsServer]:
    """Serve within."""
    served = EmbeddingsServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.keys.append(self.headers.get("Authorization", ""))
            status, reply = served.reply(request) if self.path == "/v1/embeddings" else (404, {})
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.api_base = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
