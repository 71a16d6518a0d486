"""Clients that send, or take, a byte now and then: real sockets."""

import json
import socket
import time

import pytest

from tests.lm_server import lm_server
from tests.serving.server import Server, program, served

PATIENCE = 0.6
HEAD = b"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(server: Server) -> socket.socket:
    url = server.client.base_url
    return socket.create_connection((url.host, url.port), timeout=10)


def dribble(connection: socket.socket, data: bytes, seconds: float = 0.1) -> tuple[float, bytes]:
    """Send byte after byte, until the server has closed: after how long, and what it said."""
    begun = time.monotonic()
    said = b""
    connection.settimeout(seconds)
    rest = iter(data)
    while time.monotonic() - begun < 10:
        try:
            if (byte := next(rest, None)) is not None:
                connection.sendall(bytes([byte]))
            got = connection.recv(65_536)
            if not got:
                break
            said += got
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun, said


@pytest.mark.parametrize(
    ("first", "then", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + b"Content-Length: 10\r\n\r\n", b"x", b"200"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b"x" * 1000, b"408"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 500, b"408"),
        (HEAD + b"Content-Length: 99999999\r\n\r\n", b"x" * 1000, b"413"),
        (b"POST /nothing HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n", b"x" * 1000, b"421"),
    ],
)
def test_one_that_dribbles_is_closed_and_others_are_answered_meanwhile(first, then, status):
    with lm_server() as lm, served(program(lm), read_seconds=PATIENCE) as server:
        others = [connect(server) for _ in range(50)]
        for other in others:
            other.sendall(first)
        slow = connect(server)
        slow.sendall(first)
        assert server.ask("Why?").status_code == 200
        seconds, said = dribble(slow, then)
        assert seconds < 8
        assert said.partition(b" ")[2][:3] == status
        if status == b"408":
            assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "incomplete"
            assert b"x-frame-options" in said
        for other in others:
            other.settimeout(2)
            while other.recv(65_536):
                pass
        assert server.ask("Why again?").status_code == 200
        assert len(lm.calls) == 2


def test_one_that_takes_nothing_of_its_reply_is_closed():
    with lm_server() as lm, served(program(lm), read_seconds=PATIENCE) as server, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.connect((server.client.base_url.host, server.client.base_url.port))
        slow.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        until = time.monotonic() + 20
        while server.connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not server.connections
        assert server.ask("How?").status_code == 200


def test_requests_on_one_connection_are_each_given_the_time():
    with lm_server(seconds=0.5) as lm, served(program(lm), read_seconds=PATIENCE) as server:
        for number in range(4):
            assert server.ask(f"Why {number}?").status_code == 200


def test_what_is_no_http_is_refused():
    with lm_server() as lm, served(program(lm)) as server:
        for data in (b"\x00\xff\r\n\r\n", b"GET /" + b"x" * 70_000, b"\x16\x03\x01\x02\x00"):
            with connect(server) as connection:
                connection.sendall(data + b"\r\n\r\n")
                said = b""
                try:
                    while got := connection.recv(65_536):
                        said += got
                except ConnectionError:
                    pass
            assert said.startswith(b"HTTP/1.1 400")


def test_a_request_that_breaks_off_into_nonsense_is_refused_in_peace(capfd):
    with lm_server() as lm, served(program(lm)) as server, connect(server) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400")
        assert server.ask("Why?").status_code == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("path", [b"/v1/answer", b"/healthz"])
def test_a_request_with_two_lengths_ends_its_connection(path):
    with lm_server() as lm, served(program(lm)) as server, connect(server) as connection:
        two = b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
        smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(HEAD.replace(b"/v1/answer", path) + two + smuggled)
        said = b""
        while got := connection.recv(65_536):
            said += got
        assert not lm.calls
    assert said.startswith(b"HTTP/1.1 400") and said.count(b"HTTP/1.1") == 1
    assert b'"code":"two_lengths"' in said


def test_a_redirect_tells_no_address():
    with lm_server() as lm, served(program(lm)) as server, connect(server) as connection:
        connection.sendall(b"GET /v1/program/?name=a HTTP/1.0\r\n\r\n")
        said = b""
        while got := connection.recv(65_536):
            said += got
    assert b"\r\nlocation: /v1/program?name=a\r\n" in said
