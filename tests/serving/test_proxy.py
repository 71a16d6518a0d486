"""Behind nginx, by the file in deploy/: clients that are slow are closed, and an update loses no question."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.lm_server import lm_server
from tests.serving.process import process
from tests.serving.test_connections import HEAD

DEPLOY = Path(__file__).parents[2] / "deploy" / "nginx.conf"
MAIN = """user root; daemon off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/typedrag.conf;
}}
"""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def nginx(folder: Path, port: int, servers: tuple[int, int], seconds: int = 10) -> Iterator[None]:
    """The proxy at a port, before servers at two others; it waits for clients for so many seconds."""
    command, openssl = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("openssl")
    if not command or not openssl:
        pytest.skip("nginx or openssl is not installed")
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run([openssl, *made], check=True, capture_output=True)
    text = DEPLOY.read_text()
    for before, after in (
        ("443", f"127.0.0.1:{port}"),
        ("127.0.0.1:8000", f"127.0.0.1:{servers[0]}"),
        ("127.0.0.1:8001", f"127.0.0.1:{servers[1]}"),
        ("/etc/ssl/typedrag.pem", str(certificate)),
        ("/etc/ssl/typedrag.key", str(key)),
    ):
        text = re.sub(rf"(?m)^(\s+\w.*){re.escape(before)}", rf"\g<1>{after}", text)
    (folder / "typedrag.conf").write_text(text.replace("10s", f"{seconds}s"))
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    proxy = subprocess.Popen([command, "-e", folder / "error.log", "-c", folder / "nginx.conf"])
    try:
        end = time.monotonic() + 20
        while True:
            assert proxy.poll() is None and time.monotonic() < end, (folder / "error.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield
    finally:
        proxy.terminate()
        proxy.wait(20)


ARGUMENTS = ("--program", "direct_lm", "--no-keys", "--drain", "20")
PIPELINED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + b"Content-Length: 10\r\n\r\n"


def flood(connect: Callable[[], socket.socket], count: int) -> list[socket.socket]:
    """Connections that each send a whole request and the head of a second one, in one packet."""
    connections = []
    for _ in range(count):
        connection = connect()
        connection.sendall(PIPELINED)
        connections.append(connection)
    return connections


def closed(connections: list[socket.socket], seconds: float) -> bool:
    """Whether all are closed by then."""
    end = time.monotonic() + seconds
    for connection in connections:
        connection.settimeout(max(0.1, end - time.monotonic()))
        try:
            while connection.recv(65_536):
                pass
        except TimeoutError:
            return False
        except OSError:
            continue
    return True


def test_slow_clients_fill_no_server_at_the_usual_limit_of_files(tmp_path):
    """Without a proxy, too: the soft limit is raised, and bodies have their time."""
    limited = ("bash", "-c", 'ulimit -Sn 1024; exec "$@"', "bash")
    with lm_server() as lm, process(lm, tmp_path, *ARGUMENTS, "--read-seconds", "3", before=limited) as server:
        url = httpx.URL(server.url)
        slow = flood(lambda: socket.create_connection((url.host, url.port), timeout=30), 1020)
        assert server.ask("Why?").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert server.wait() == 143
        assert time.monotonic() - begun < 15
        assert closed(slow, 1)


def test_the_proxy_closes_slow_clients_and_lets_others_through(tmp_path):
    port, first, second = free_ports(3)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect() -> socket.socket:
        return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=30))

    with (
        lm_server() as lm,
        process(lm, tmp_path, *ARGUMENTS, "--port", str(first)),
        nginx(tmp_path / "nginx", port, (first, second), seconds=3),
        httpx.Client(transport=httpx.HTTPTransport(verify=False, local_address="127.0.0.2"), timeout=30) as other,
    ):
        slow = flood(connect, 1020)
        slow += [connect() for _ in range(10)]  # say nothing
        slow[-1].sendall(b"GET /healthz HTTP/1.1\r\nHos")
        replies = [other.post(f"https://127.0.0.1:{port}/v1/answer", json={"question": f"Why {n}?"}) for n in range(5)]
        assert [reply.status_code for reply in replies] == [200] * 5
        assert closed(slow, 20)


def test_an_update_of_one_server_after_the_other_loses_no_question(tmp_path):
    port, *ports = free_ports(3)
    over = threading.Event()

    def ask_on(number: int) -> list[int]:
        statuses = []
        with httpx.Client(verify=False, timeout=60) as client:
            while not over.is_set():
                body = {"question": f"Why {number}, {len(statuses)}?"}
                statuses.append(client.post(f"https://127.0.0.1:{port}/v1/answer", json=body).status_code)
        return statuses

    with lm_server(seconds=0.1) as lm, ExitStack() as stack:
        start = lambda at: stack.enter_context(process(lm, tmp_path, *ARGUMENTS, "--port", str(at)))  # noqa: E731
        servers = [start(at) for at in ports]
        stack.enter_context(nginx(tmp_path / "nginx", port, (ports[0], ports[1])))
        pool = stack.enter_context(ThreadPoolExecutor(8))
        asking = [pool.submit(ask_on, number) for number in range(8)]
        try:
            for server, at in zip(servers, ports, strict=True):
                time.sleep(1)
                server.process.send_signal(signal.SIGTERM)
                assert server.wait() == 143
                new = start(at)
                while new.client.get("/readyz").status_code != 200:
                    time.sleep(0.1)
            time.sleep(1)
        finally:
            over.set()
        statuses = [status for future in asking for status in future.result()]
    assert len(statuses) > 100
    assert set(statuses) == {200}
