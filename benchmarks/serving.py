"""The load that a server adds to a program's LM calls.

A stub server (`benchmarks/stub_server.py`) takes one second for each call, whatever their number. Over the sample
corpus, `rag` (BM25, then one LM call) is asked by many clients at once, which begin one after the other within a
second; each asks its next question when it has the last answer:

typedrag     `typedrag serve`
replicas     `typedrag serve --workers 2`
asyncify     FastAPI with `dspy.asyncify` around the same program, with as many threads as there are clients
mlflow       `mlflow models serve` of the same program
hayhooks     Hayhooks with a Haystack pipeline of the same calls, where --hayhooks names a Python that has both:
             python -m venv HAY && HAY/bin/pip install hayhooks haystack-ai

Of each, once it is warm: questions a second while all clients ask, over what the stub allows (clients / delay); p50
and p99; seconds to the first event, which is the whole answer where nothing streams; CPU milliseconds a question, over
those of the program alone in as many threads; memory, and what of it a client takes that waits; statuses.

    python -m benchmarks.serving --clients 1 16 64 256 1024 --hayhooks HAY/bin/python
    python -m benchmarks.serving --minutes 30
    python -m benchmarks.serving --misbehaving --clients 64
    python -m benchmarks.serving --bursts
"""

import argparse
import asyncio
import contextvars
import itertools
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import aiohttp
import dspy
import psutil

from benchmarks.claims import Claim, report
from benchmarks.stub_server import MODEL, stub_server
from typedrag.cli.terminal import run
from typedrag.core.records import Answer
from typedrag.datasets.sample import PASSAGES
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.lm import open_lm, use_lm
from typedrag.programs import Program, build_program
from typedrag.retrieval import open_retriever
from typedrag.retrieval.opening import default_index

T = TypeVar("T")
QUESTION = "Why does homemade bread turn out dense and heavy, in the words of baker {}?"
LEAST = 0.9
MOST_CPU = 1.3
MOST_ANNOYED = 1.2
MOST_SILENT = 0.5
STARTS_SECONDS = 120
WARM_SECONDS = 10.0
"""Until Java has compiled what a search runs through."""
_KEY = "tr-a-key-of-the-benchmark"
_ONE_AND_A_HALF = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
)
_SLOW_BODY = (
    b"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer %b\r\nContent-Length: 50000\r\n\r\n" % _KEY.encode()
)


@dataclass(frozen=True)
class System:
    """A server to measure.

    Attributes:
        name: Its name in the table.
        command: Starts it at a port.
        path: That answers.
        streams: Whether it sends events.
        body: Of a request, by its question.
    """

    name: str
    command: Callable[[int, Path], list[str]]
    path: str
    streams: bool = False
    body: Callable[[str], object] = field(default=lambda question: {"question": question})


def _typedrag(port: int, folder: Path) -> list[str]:
    return [sys.executable, "-m", "typedrag", "serve", "--program", "rag", "--port", str(port),
            "--lm", f"vllm:{MODEL}", "--running", "2048", "--lm-calls", "2048", "--rate", "100000000"]  # fmt: skip


def _asyncify(port: int, folder: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.serving", "--asyncify", str(port)]


def _replicas(port: int, folder: Path) -> list[str]:
    return [*_typedrag(port, folder), "--workers", "2"]


def _mlflow(port: int, folder: Path) -> list[str]:
    return [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(save_model(folder)),
            "--env-manager", "local", "--port", str(port)]  # fmt: skip


def _hayhooks(python: Path) -> System:
    pipelines = str(Path(__file__).with_name("hayhooks_pipelines"))
    command = [str(python.with_name("hayhooks")), "run", "--pipelines-dir", pipelines, "--without-tracing"]
    return System("hayhooks", lambda port, folder: [*command, "--port", str(port)], "/rag/run")


SYSTEMS = {
    "typedrag": System("typedrag", _typedrag, "/v1/answer", streams=True),
    "replicas": System("replicas", _replicas, "/v1/answer", streams=True),
    "asyncify": System("asyncify", _asyncify, "/answer"),
    "mlflow": System("mlflow", _mlflow, "/invocations", body=lambda q: {"dataframe_records": [{"question": q}]}),
}


@dataclass
class Load:
    """The replies of a server to a load of questions.

    Attributes:
        seconds: Of each answer, from its question.
        first: Of each answer's first event.
        ends: The times at which the answers came.
        statuses: Of all replies.
        all_ask: When the slowest client has begun, and when the first one stops.
        cpu: Seconds of the server's processes.
        megabytes: Their memory, halfway.
    """

    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    all_ask: tuple[float, float] = (0.0, 0.0)
    cpu: float = 0.0
    megabytes: float = 0.0

    @property
    def rate(self) -> float:
        """Questions answered a second while all clients ask."""
        begun, end = self.all_ask
        return sum(begun < time <= end for time in self.ends) / (end - begun)

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds a question."""
        return 1000 * self.cpu / max(1, len(self.seconds))

    def quantile(self, percent: int) -> float:
        """A quantile of the seconds to the answer."""
        return statistics.quantiles(self.seconds, n=100)[percent - 1] if len(self.seconds) > 1 else self.seconds[0]


class Running:
    """A running server."""

    def __init__(self, system: System, port: int, process: subprocess.Popen[bytes]) -> None:
        self.system = system
        self.url = f"http://127.0.0.1:{port}{system.path}"
        self._process = psutil.Process(process.pid)
        self._numbers = itertools.count()

    def _each(self, read: Callable[[psutil.Process], T]) -> Iterator[T]:
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # the server is still starting
                yield read(process)

    def cpu(self) -> float:
        """The CPU seconds of all its processes so far."""
        return sum(time.user + time.system for time in self._each(psutil.Process.cpu_times))

    def megabytes(self) -> float:
        """The memory that its processes have to themselves."""
        return sum(memory.uss for memory in self._each(psutil.Process.memory_full_info)) / 1e6

    def ask(self, clients: int, seconds: float, delay: float = 0.0, *, events: bool = False) -> Load:
        """Ask for this many seconds, for answers or for events; the clients begin within the delay."""
        headers = {"Authorization": f"Bearer {_KEY}", **({"Accept": "text/event-stream"} if events else {})}
        return asyncio.run(self._ask(clients, seconds, delay, headers))

    def send_at_once(self, path: str, bodies: Sequence[object], headers: Mapping[str, str]) -> tuple[float, float]:
        """The seconds until all requests are answered, and the slowest reply of `/healthz` meanwhile."""

        async def send() -> tuple[float, float]:
            slowest = 0.0

            async def look() -> None:
                nonlocal slowest
                while True:
                    begun = time.monotonic()
                    async with session.get(urljoin(self.url, "/healthz")) as reply:
                        await reply.read()
                    slowest = max(slowest, time.monotonic() - begun)
                    await asyncio.sleep(0.02)

            async def post(body: object) -> None:
                async with session.post(urljoin(self.url, path), json=body, headers=headers) as reply:
                    text = await reply.text()
                    assert reply.status == 200 and '"isError":true' not in text, f"{reply.status} {text[:200]}"

            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                begun, looking = time.monotonic(), asyncio.create_task(look())
                await asyncio.gather(*map(post, bodies))
                seconds = time.monotonic() - begun
                looking.cancel()
            return seconds, slowest

        return asyncio.run(send())

    async def _ask(self, clients: int, seconds: float, delay: float, headers: dict[str, str]) -> Load:
        load, begun, cpu = Load(), time.monotonic(), self.cpu()
        load.all_ask = (begun + 2 * delay, begun + 2 * delay + seconds)
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            waits = (delay * number / clients for number in range(clients))
            asking = [self._client(session, load, wait, headers) for wait in waits]
            await asyncio.gather(self._weigh(load, seconds / 2), *asking)
        load.cpu = self.cpu() - cpu
        return load

    async def _weigh(self, load: Load, after: float) -> None:
        await asyncio.sleep(after)
        load.megabytes = self.megabytes()

    async def _client(self, session: aiohttp.ClientSession, load: Load, wait: float, headers: dict[str, str]) -> None:
        await asyncio.sleep(wait)
        while True:
            begun = time.monotonic()
            body = self.system.body(QUESTION.format(f"{self.system.name} {next(self._numbers)}"))
            try:
                async with session.post(self.url, json=body, headers=headers) as reply:
                    await reply.content.readany()
                    first = time.monotonic() - begun
                    await reply.read()
                    status = str(reply.status)
            except (aiohttp.ClientError, TimeoutError) as error:
                status = type(error).__name__
            load.statuses[status] += 1
            if status == "200":
                load.seconds.append(time.monotonic() - begun)
                load.first.append(first)
                load.ends.append(time.monotonic())
            if time.monotonic() > load.all_ask[1]:
                return


@contextmanager
def running(system: System, folder: Path) -> Iterator[Running]:
    """Run a server within; yields it once it has answered a question."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / f"{system.name}.log").open("wb") as log:
        process = subprocess.Popen(system.command(port, folder), stdout=log, stderr=log, start_new_session=True)
        server = Running(system, port, process)
        try:
            end = time.monotonic() + STARTS_SECONDS
            while not server.ask(1, 0).seconds:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(
                        f"{system.name} does not start: {(folder / f'{system.name}.log').read_text()[-2000:]}"
                    )
                time.sleep(0.5)
            yield server
        finally:
            with suppress(psutil.NoSuchProcess):
                for child in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
                    child.terminate()
            process.wait(60)


@contextmanager
def misbehaving(server: Running) -> Iterator[None]:
    """Three clients at another address within: one sends bodies byte by byte, one leaves requests half sent behind
    whole ones, and one tries keys without an end."""
    url, over = urlsplit(server.url), threading.Event()
    here = ("127.0.0.2", 0)

    def connect() -> socket.socket:
        return socket.create_connection((str(url.hostname), url.port or 80), source_address=here, timeout=10)

    def leave_open(head: bytes, more: bytes) -> None:
        sockets: deque[socket.socket] = deque()
        while not over.wait(0.02):
            sockets.append(connect())
            sockets[-1].sendall(head)
            with suppress(OSError):  # the server may have closed it
                random.choice(sockets).sendall(more)
            if len(sockets) > 200:
                sockets.popleft().close()

    def try_keys() -> None:
        connection = HTTPConnection(str(url.hostname), url.port, source_address=here, timeout=120)
        numbers = itertools.count()
        while not over.is_set():
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer tr-{next(numbers)}"})
            connection.getresponse().read()

    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(leave_open, _SLOW_BODY, b" ")
        clients = [slow, pool.submit(leave_open, _ONE_AND_A_HALF, b""), pool.submit(try_keys)]
        try:
            yield
        finally:
            over.set()
    for client in clients:
        client.result()


def own_cpu(clients: int, count: int) -> float:
    """CPU milliseconds of a question that the program takes by itself, in so many threads: the median of three."""
    program, lm = _warm_program()

    def once() -> float:
        contexts = [contextvars.copy_context() for _ in range(count)]
        questions = [QUESTION.format(f"{time.monotonic()} {n}") for n in range(count)]
        begun = time.process_time()
        list(pool.map(lambda pair: pair[0].run(program, question=pair[1]), zip(contexts, questions, strict=True)))
        return 1000 * (time.process_time() - begun) / count

    with use_lm(lm), ThreadPoolExecutor(clients) as pool:
        return statistics.median(once() for _ in range(3))


@cache
def _warm_program() -> tuple[Program, dspy.LM]:
    program, lm = _program()
    limit_calls_in_flight(2048)
    end = time.monotonic() + 2 * WARM_SECONDS

    def ask() -> None:
        while time.monotonic() < end:
            program(question=QUESTION.format(time.monotonic()))

    with use_lm(lm), ThreadPoolExecutor(64) as pool:
        for asking in [pool.submit(contextvars.copy_context().run, ask) for _ in range(64)]:
            asking.result()
    return program, lm


def _program() -> tuple[Program, dspy.LM]:
    return build_program("rag", open_retriever("bm25", default_index(), {})), open_lm(f"vllm:{MODEL}")


def save_model(folder: Path) -> Path:
    """The folder of the program as MLflow serves it."""
    from mlflow.models import Model

    from typedrag.experiments.tracking.served_model import save_served_program
    from typedrag.programs.compiled import save_compiled

    save_compiled(_program()[0], folder / "program")
    save_served_program(folder / "program", folder / "model", Model())
    return folder / "model"


def serve_asyncify(port: int) -> None:
    """Serve the program as with FastAPI and DSPy alone."""
    import uvicorn
    from fastapi import FastAPI

    program, lm = _program()
    limit_calls_in_flight(2048)
    app = FastAPI()
    with use_lm(lm), dspy.context(async_max_workers=2048):
        ask = dspy.asyncify(program)

        @app.post("/answer")
        async def answer(body: dict[str, str]) -> dict[str, object]:
            return Answer.from_prediction(await ask(question=body["question"])).to_dict()

        uvicorn.run(app, port=port, log_level="warning")


def measure(system: System, folder: Path, clients: Sequence[int], seconds: float, delay: float) -> list[Claim]:
    """Ask a server, and print a line for each number of clients."""
    claims = []
    with running(system, folder) as server:
        server.ask(64, WARM_SECONDS)
        idle = server.megabytes()
        for count in clients:
            load = server.ask(count, max(seconds, 3 * delay), delay)
            first = server.ask(count, 0, events=True).first if system.streams else load.first
            allowed, waiting = count / delay, 1000 * (load.megabytes - idle) / count
            own = own_cpu(min(count, 64), max(16, min(count, 128)))
            print(
                f"{system.name:9} {count:5} clients  {load.rate:7.1f}/s ({load.rate / allowed:4.0%} of the stub's)  "
                f"p50 {load.quantile(50):6.2f} s  p99 {load.quantile(99):6.2f} s  "
                f"first {statistics.median(first):5.2f} s  CPU {load.cpu_ms:5.1f} ms ({load.cpu_ms / own:4.2f} of the "
                f"program's {own:.1f})  {load.megabytes:.0f} MB (idle {idle:.0f}, {waiting:.0f} KB a client)  "
                f"{dict(load.statuses)}",
                flush=True,
            )
            goals = {"least": LEAST} if system.streams and count == 64 else {}
            claims.append(Claim(f"{system.name}, {count} clients", load.rate, allowed, "questions/s", **goals))
            if goals:
                claims.append(Claim(f"{system.name}, CPU", load.cpu_ms, own, "ms/question", most=MOST_CPU))
    return claims


def annoy(folder: Path, clients: int, seconds: float, delay: float) -> list[Claim]:
    """Ask `typedrag serve` without and with clients that misbehave, and compare the 99th percentiles."""
    os.environ["TYPEDRAG_CLIENT_KEYS"] = f"benchmark={_KEY}"
    with running(SYSTEMS["typedrag"], folder) as server:
        server.ask(clients, WARM_SECONDS)
        alone = server.ask(clients, seconds, delay)
        with misbehaving(server):
            annoyed = server.ask(clients, seconds, delay)
    print(f"alone {dict(alone.statuses)}, beside others {dict(annoyed.statuses)}", flush=True)
    del os.environ["TYPEDRAG_CLIENT_KEYS"]
    return [
        Claim("p99 beside clients that misbehave", annoyed.quantile(99), alone.quantile(99), "s", most=MOST_ANNOYED)
    ]


def burst(folder: Path) -> list[Claim]:
    """Send `typedrag serve` much at once that asks no LM, and look how long it answers nothing else."""
    answer = " ".join(f"Ab{n} cd." for n in range(1_500))
    passages = [{"id": "a", "text": " ".join(f"Ab{n} cd." for n in range(4_000))}]
    supports = [{"question": f"Why {n}?", "answer": answer, "passages": passages} for n in range(24)]
    calls = [{"name": "search", "arguments": {"query": QUESTION.format(n), "k": 50}} for n in range(200)]
    searches = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params} for params in calls]
    accept = {"Accept": "application/json, text/event-stream"}
    claims = []
    with running(SYSTEMS["typedrag"], folder) as server:
        server.ask(16, WARM_SECONDS)
        for path, bodies in (("/v1/support", supports), ("/mcp", searches)):
            seconds, slowest = server.send_at_once(path, bodies, accept)
            print(f"{len(bodies)} × {path} at once: {seconds:.2f} s", flush=True)
            claims.append(Claim(f"/healthz beside {len(bodies)} × {path}", slowest, 1.0, "s", most=MOST_SILENT))
    return claims


def soak(folder: Path, seconds: float) -> list[Claim]:
    """Ask `typedrag serve` for long, and compare its memory at the end with that after a sixth of the time."""
    with running(SYSTEMS["typedrag"], folder) as server:
        start = server.megabytes()
        server.ask(32, seconds / 6)
        warm = server.megabytes()
        load = server.ask(32, seconds * 5 / 6)
        end = server.megabytes()
        print(f"{len(load.seconds)} questions, {dict(load.statuses)}", flush=True)
        print(f"memory: {start:.0f} MB at the start, {warm:.0f} MB warm, {end:.0f} MB at the end", flush=True)
        return [Claim("memory after the soak", end, warm, "MB", most=1.1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS], default=[*SYSTEMS])
    parser.add_argument("--hayhooks", type=Path, metavar="PYTHON", help="that has hayhooks and haystack-ai")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument("--delay", type=float, default=1.0, help="of the stub, for each call")
    parser.add_argument("--minutes", type=float, help="ask for so long instead, and look at memory")
    parser.add_argument("--bursts", action="store_true", help="send much at once that asks no LM instead")
    parser.add_argument("--misbehaving", action="store_true", help="ask beside clients that misbehave instead")
    parser.add_argument("--asyncify", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    if arguments.asyncify:
        serve_asyncify(arguments.asyncify)
        return
    with ExitStack() as stack:
        stub = stack.enter_context(stub_server(delay=arguments.delay))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {
            "TYPEDRAG_LM": f"vllm:{MODEL}",
            "TYPEDRAG_API_BASE": stub.api_base,
            "TYPEDRAG_INDEX": str(default_index()),
            "TYPEDRAG_CACHE": str(folder / "cache"),
            "BENCHMARK_PASSAGES": str(PASSAGES),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # MLflow starts uvicorn by its name
        }
        most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # a client is one here and two in the server
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        if arguments.minutes:
            sys.exit(report(soak(folder, 60 * arguments.minutes), check=arguments.check))
        if arguments.bursts:
            sys.exit(report(burst(folder), check=arguments.check))
        if arguments.misbehaving:
            claims = annoy(folder, max(arguments.clients), arguments.seconds, arguments.delay)
            sys.exit(report(claims, check=arguments.check))
        systems = [SYSTEMS[name] for name in arguments.systems]
        if arguments.hayhooks:
            systems.append(_hayhooks(arguments.hayhooks))
        claims = [c for s in systems for c in measure(s, folder, arguments.clients, arguments.seconds, arguments.delay)]
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
