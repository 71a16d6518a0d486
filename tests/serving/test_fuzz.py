"""Requests that no client means: from the OpenAPI schema by schemathesis, and from a fuzzer of our own.

`TYPEDRAG_FUZZ` says how many there are together.
"""

import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

import typedrag
from tests.lm_server import lm_server
from tests.serving.server import Server, program, served

REQUESTS = int(os.environ.get("TYPEDRAG_FUZZ", "700"))
MEANT = (502, 503, 504)
DOCUMENTED = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
"""That replies are as the schema says."""
TOLD_NOBODY = (
    "Traceback", "site-packages", ".py", "Errno", "0x7f", f"{Path(typedrag.__file__).parents[1]}", f"{Path.home()}/"
)  # fmt: skip

METHODS = b"GET POST PUT PATCH DELETE HEAD OPTIONS TRACE CONNECT get BREW \xff".split()
PATHS = """/ /v1/answer /v1/answer/batch /v1/answer/ /v1/program?name= /v1/program?name=%ff%00 /v1/models /mcp /mcp/
/v1/chat/completions /v1/responses /v1/feedback /metrics /healthz /readyz /openapi.json /docs /static/
/static/../../etc/passwd /static/%2e%2e/%2e%2e/etc/passwd
//v1/answer /%00 /..;/v1 * http://elsewhere/v1/answer /v1/answer?%ed%a0%80=1""".split()
HEADERS = [
    b"Content-Type: application/json",
    b"Content-Type: application/json; charset=utf-7",
    b"Content-Type: text/plain",
    b"Content-Type: multipart/form-data",
    b"Content-Type: \xff",
    b"Accept: text/event-stream",
    b"Accept: " + b"*/*," * 500,
    b"Accept-Encoding: gzip, br, \x01",
    b"Authorization: Bearer \xc3\xbf",
    b"Authorization: Basic !!!",
    b"X-API-Key: " + b"k" * 3000,
    b"X-Request-ID: ../../../etc",
    b"X-Request-ID: {{7*7}}",
    b"X-Forwarded-For: 1.2.3.4, \xff",
    b"X-Forwarded-Proto: gopher",
    b"Origin: null",
    b"Access-Control-Request-Method: \xff",
    b"Expect: 100-continue",
    b"Upgrade: websocket",
    b"Connection: upgrade",
    b"Cookie: a=b; \xff",
    b"Range: bytes=9-1",
    b"Content-Encoding: gzip",
    b"mcp-session-id: \xff",
    b"no colon",
    b": no name",
    b" folded",
]
HOSTS = [*[b"Host: localhost"] * 8, b"Host: elsewhere", b"Host: [::1"]
FRAMES = [
    b"Content-Length: -1",
    b"Content-Length: 7",
    b"Content-Length: 99999999999",
    b"Content-Length: 1\r\nContent-Length: 2",
    b"Transfer-Encoding: gzip",
]
VALUES = [
    "NaN", "-Infinity", "1e999", "9" * 5000, "null", "true", '"\\ud800"', '"\\u0000"', '"\\u202e"', "[]", "{}", '""',
    "[" * 5000, '{"a":' * 2000, '["Why?"]', '[{"role":"user","content":"Why?"}]', '"' + "x" * 6000 + '"', '"Why?"',
]  # fmt: skip
NAMES = "question questions program messages model stream n temperature tools user \\ud800 __proto__ rating".split()


def odd_requests(number: int) -> Iterator[bytes]:
    """The same each time."""
    lot = random.Random(31)
    for _ in range(number):
        if lot.random() < 0.1:
            yield lot.randbytes(lot.randrange(1, 400))
            continue
        body = odd_body(lot)
        head = [
            b" ".join((lot.choice(METHODS), lot.choice(PATHS).encode(), lot.choice([b"HTTP/1.1"] * 9 + [b"HTTP/0"])))
        ]
        if lot.random() < 0.9:
            head += [lot.choice(HOSTS), b"Content-Type: application/json"]
        head += [*lot.sample(HEADERS, lot.randrange(3)), b"Connection: close"]
        framed = lot.random()
        if framed < 0.8:
            head.append(b"Content-Length: %d" % len(body))
        elif framed < 0.9:
            head.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        else:
            head.append(lot.choice(FRAMES))
        request = b"\r\n".join([*head, b"", body])
        if lot.random() < 0.1:
            spoilt = bytearray(request)
            for _ in range(lot.randrange(1, 5)):
                spoilt[lot.randrange(len(spoilt))] = lot.randrange(256)
            request = bytes(spoilt)
        yield request


def odd_body(lot: random.Random) -> bytes:
    fields = [f'"{lot.choice(NAMES)}":{lot.choice(VALUES)}' for _ in range(lot.randrange(4))]
    body = ("{" + ",".join(fields) + "}").encode()
    kind = lot.random()
    if kind < 0.1:
        return body[: lot.randrange(len(body))]
    if kind < 0.15:
        return lot.randbytes(lot.randrange(300))
    if kind < 0.2:
        return body.decode().encode("utf-16")
    return lot.choice(VALUES).encode() if kind < 0.3 else body


def sent(server: Server, request: bytes) -> bytes:
    """What the server says to bytes after which nothing more comes."""
    url = server.client.base_url
    said = b""
    with socket.create_connection((url.host, url.port), timeout=30) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while got := connection.recv(65_536):
                said += got
        except ConnectionError:
            pass  # it has said what it had to say
    return said.removeprefix(b"HTTP/1.1 100 \r\n\r\n").removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")


def ask_by_schema(server: Server, each: int, check: Callable[[int, str, object], None]) -> None:
    """Ask every operation of the schema, as it says and as it forbids."""
    for found in schemathesis.openapi.from_url(f"{server.url}/openapi.json").get_all_operations():
        for mode in GenerationMode:

            @seed(31)
            @settings(
                max_examples=each,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=found.ok().as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                reply = case.call(timeout=60)  # the first coverage is judged once its model is loaded
                case.validate_response(reply, checks=DOCUMENTED)
                check(reply.status_code, f"{reply.text} {reply.headers}", case)

            with suppress(Unsatisfiable):  # an operation without arguments forbids nothing
                ask()


def test_no_request_breaks_the_server_or_is_told_of_its_inside(capfd):
    statuses: Counter[int] = Counter()
    secrets = list(TOLD_NOBODY)

    def check(status: int, said: str, request: object) -> None:
        statuses[status] += 1
        assert status < 500 or status in MEANT, (status, said, request)
        assert not [secret for secret in secrets if secret in said], (said, request)

    with lm_server() as lm, served(program(lm), deadline=20) as server:
        secrets += [lm.api_base, lm.api_base.split("/")[2]]
        ask_by_schema(server, max(1, REQUESTS // 20), check)
        by_schema = statuses.total()
        for request in odd_requests(REQUESTS - by_schema):
            if said := sent(server, request):
                check(int(said.split(b" ", 2)[1]), said.decode("utf-8", "replace"), request)
            else:
                statuses[0] += 1
        assert server.client.get("/healthz").status_code == 200
        assert server.ask("Why?").status_code == 200
    with capfd.disabled():
        print(f"{statuses.total()} requests, {by_schema} of them by the schema; by status: {sorted(statuses.items())}")
    assert by_schema > REQUESTS / 5
    assert "Traceback" not in capfd.readouterr().err
    assert statuses[0] < statuses.total() / 5  # those alone that end within their head
    assert {200, 400, 404, 405, 421, 422} <= statuses.keys()
