"""An index server within the tests: a real one, in a thread."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from typedrag.retrieval import IndexRetriever
from typedrag.serving.index_server import IndexSettings, SearchService, create_index_app
from typedrag.serving.server import http_options, listen


@dataclass
class Serving:
    """An index that is served at an address."""

    url: str
    service: SearchService


@contextmanager
def served_index(retriever: IndexRetriever, *, port: int = 0, **limits: Any) -> Iterator[Serving]:
    """Serve an index within, under some limits."""
    settings = IndexSettings(**limits)
    service = SearchService(retriever, settings)
    listener: socket.socket = listen("127.0.0.1", port, settings)
    server = uvicorn.Server(uvicorn.Config(create_index_app(service), **http_options(settings)))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Serving(f"http://127.0.0.1:{listener.getsockname()[1]}", service)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
