"""A server within the tests: a real one, in a thread, over an LM server that remembers what it was asked."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from tests.lm_server import MODEL, LMServer
from typedrag.lms.lm import open_lm
from typedrag.programs import build_program
from typedrag.serving.app import create_app
from typedrag.serving.programs import LoadedProgram, ProgramSpec, Reloader
from typedrag.serving.server import http_options, listen
from typedrag.serving.service import Service
from typedrag.serving.settings import Settings


@dataclass
class Server:
    """A server that runs."""

    client: httpx.Client
    service: Service
    uvicorn: uvicorn.Server
    lm: LMServer | None = None

    @property
    def under_way(self) -> int:
        """Questions and searches."""
        return self.service.admission.under_way

    @property
    def connections(self) -> int:
        """Open ones."""
        return len(self.uvicorn.server_state.connections)

    @property
    def url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def ask(self, question: str, **values: Any) -> httpx.Response:
        return self.client.post("/v1/answer", json={"question": question, **values})


def program(lm: LMServer, name: str = "direct_lm", retriever: Any = None, **settings: Any) -> LoadedProgram:
    """A program over an LM server."""
    spec = {"cache": False, "num_retries": 0, **settings}
    return LoadedProgram(
        name, name, build_program(name, retriever), open_lm(f"vllm:{MODEL}", api_base=lm.api_base, **spec)
    )


@contextmanager
def served(
    *programs: LoadedProgram,
    wrap: Callable[[Any], Any] | None = None,
    reload: Sequence[ProgramSpec] = (),
    **limits: Any,
) -> Iterator[Server]:
    """Serve programs within, under some limits; those of some sources are opened anew when they have changed."""
    settings = Settings(**{"rate": 1_000_000, **limits})
    service = Service(programs, settings)
    app = create_app(service, Reloader(service, reload).watch)
    listener = listen("127.0.0.1", 0, settings)
    server = uvicorn.Server(uvicorn.Config(wrap(app) if wrap else app, **http_options(settings)))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield Server(client, service, server)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
