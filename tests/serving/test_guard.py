import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import Mock

import httpx
import pytest

from tests.lm_server import lm_server
from tests.serving.server import Server, program, served
from typedrag.core.errors import InputError
from typedrag.retrieval import BM25Retriever
from typedrag.serving import monitoring
from typedrag.serving.keys import KeyFile
from typedrag.serving.middleware import SECURITY_HEADERS

SECRET = "sk-a-key-of-the-lm-0123456789"
JSON = {"Content-Type": "application/json"}
QUESTION = "Why does homemade bread turn out dense and heavy?"


@pytest.fixture
def lines(monkeypatch):
    """The lines of the log."""
    found: list[dict] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(monitoring.JSONLines().format(record)))

    monkeypatch.setattr(monitoring.logger, "handlers", [Handler()])
    monkeypatch.setattr(monitoring.logger, "propagate", False)
    monitoring.logger.setLevel(logging.INFO)
    return found


@contextmanager
def keyed(tmp_path, **limits) -> Iterator[tuple[Server, KeyFile, str]]:
    """A server that wants keys, the file of them, and one of them."""
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.add("ann")
    with lm_server() as lm, served(program(lm), keys=keys.path, **limits) as server:
        server.lm = lm
        yield server, keys, key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_who_has_no_key_gets_nothing_but_the_page_and_the_checks(tmp_path):
    with keyed(tmp_path) as (server, _, key):
        get, post = server.client.get, server.client.post
        for headers in ({}, bearer(key + "x"), bearer("x"), {"Authorization": key}, {"X-API-Key": "x"}):
            refused = post("/v1/answer", json={"question": "Why?"}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        closed = ("/v1/program", "/openapi.json", "/docs", "/metrics", "/mcp", "/nothing", "/static", "//static/x")
        assert {get(path).status_code for path in closed} == {401}
        assert post("/healthz").status_code == 401
        assert get("/healthz").status_code == 200
        assert get("/static/nothing").status_code == 404
        for headers in (bearer(key), {"Authorization": f"bearer {key}"}, {"X-API-Key": key}):
            assert post("/v1/answer", json={"question": "Why?"}, headers=headers).status_code == 200


def test_a_key_asks_no_more_often_than_its_rate(tmp_path):
    with keyed(tmp_path, rate=3) as (server, keys, key):
        other = keys.add("bob", rate=5)
        of_ann = [server.client.get("/v1/program", headers=bearer(key)) for _ in range(5)]
        of_bob = [server.client.get("/v1/program", headers=bearer(other)) for _ in range(5)]
        checks = [server.client.get("/healthz").status_code for _ in range(10)]
    assert [reply.status_code for reply in of_ann] == [200] * 3 + [429] * 2
    assert [reply.status_code for reply in of_bob] == [200] * 5
    assert set(checks) == {200}
    assert of_ann[-1].json()["error"]["code"] == "rate_limited"
    assert 1 <= int(of_ann[-1].headers["Retry-After"]) <= 30


def test_without_keys_a_name_from_elsewhere_is_not_answered():
    with lm_server() as lm, served(program(lm)) as server:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", ""):
            status = server.client.get("/v1/program", headers={"Host": host}).status_code
            assert status == (200 if not host else 421)
        for host in ("localhost", "localhost:9", "127.0.0.1", "[::1]:8000"):
            assert server.client.get("/v1/program", headers={"Host": host}).status_code == 200
    with lm_server() as lm, served(program(lm), no_keys=True) as server:
        assert server.client.get("/v1/program", headers={"Host": "evil.example"}).status_code == 200


def chunks(size: int) -> Iterator[bytes]:
    yield b'{"question": "'
    for _ in range(size // 1000):
        yield b"x" * 1000
    yield b'"}'


def test_a_body_that_is_too_large_is_refused_at_once_however_it_comes():
    with lm_server() as lm, served(program(lm), body_bytes=2000, read_seconds=120) as server:
        whole = b"".join(chunks(5000))
        replies = [
            server.client.post("/v1/answer", content=whole, headers=JSON),
            server.client.post("/v1/answer", content=chunks(5000), headers=JSON),
            server.client.post("/v1/answer", content=chunks(500_000), headers=JSON),
        ]
        assert [reply.status_code for reply in replies] == [413] * 3
        assert replies[0].json()["error"]["code"] == "too_large"
        assert server.client.post("/v1/answer", content=chunks(1000), headers=JSON).status_code == 200
        assert len(lm.calls) == 1


def test_heads_that_are_too_long_are_refused():
    with lm_server() as lm, served(program(lm)) as server:
        long = server.client.get("/v1/program", params={"name": "x" * 20_000})
        many = server.client.get("/v1/program", headers={f"X-{n}": "x" * 1000 for n in range(20)})
    for reply in (long, many):
        assert (reply.status_code, reply.json()["error"]["code"]) == (431, "head_too_large")
        assert reply.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    "body",
    [
        b'{"question":' * 1000 + b'"Why?"' + b"}" * 1000,
        b"[" * 30_000,
        b'{"question": NaN}',
        b'{"question": 1e999}',
        b'{"question": ' + b"9" * 6000 + b"}",
        b'{"question": "\\ud800"}',
        b'{"question": "Why?", "\\ud800": 1}',
        b'{"question": "Why?", "' + b"x" * 5000 + b'": 1}',
        b'{"question": "\xff\xfe"}',
        b'\xff\xfe{\x00"\x00',
        b'{"question": "Why?"',
        b"null",
        b"",
    ],
)
def test_bodies_that_are_no_question_are_the_clients_fault(body):
    with lm_server() as lm, served(program(lm)) as server:
        reply = server.client.post("/v1/answer", content=body, headers=JSON)
        assert reply.status_code in (400, 422)
        assert reply.json()["error"]["code"] in ("invalid_request", "http_error")
        assert len(reply.content) < 600
        assert not lm.calls


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_is_not_said_to_be_json_is_refused(kind):
    with lm_server() as lm, served(program(lm)) as server:
        headers = {"Content-Type": kind} if kind else {}
        reply = server.client.post("/v1/answer", content=b'{"question": "Why?"}', headers=headers)
        assert 400 <= reply.status_code < 500
        assert not lm.calls


def test_every_reply_has_headers_that_keep_browsers_safe():
    with lm_server(reply=lambda call: (500, "no")) as lm, served(program(lm), body_bytes=99) as server:
        replies = [
            server.client.get("/healthz"),
            server.client.get("/nothing"),
            server.client.put("/v1/answer"),
            server.ask("x" * 100),
            server.ask("Why?"),
            server.client.get("/healthz", headers={"Host": "evil.example"}),
            server.client.get("/docs"),
        ]
    assert [reply.status_code for reply in replies] == [200, 404, 405, 413, 503, 421, 404]
    for reply in replies:
        assert SECURITY_HEADERS.items() <= {name: reply.headers.get(name) for name in SECURITY_HEADERS}.items()
        assert reply.headers["X-Request-ID"]
        assert "Server" not in reply.headers
        assert "Access-Control-Allow-Origin" not in reply.headers
    assert replies[2].headers["Allow"] == "POST"


def test_browsers_may_ask_from_named_origins_alone(tmp_path):
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with keyed(tmp_path, origins=("https://good.example",)) as (server, _, key):
        for origin, allowed in (("https://good.example", True), ("https://evil.example", False)):
            asked = server.client.options("/v1/answer", headers={"Origin": origin, **preflight})
            reply = server.client.get("/v1/program", headers={"Origin": origin, **bearer(key)})
            refused = server.client.get("/v1/program", headers={"Origin": origin})
            assert asked.is_success == allowed
            assert (reply.status_code, refused.status_code) == (200, 401)
            for each in (asked, reply, refused):
                assert (each.headers.get("Access-Control-Allow-Origin") == origin) == allowed
    with keyed(tmp_path / "other") as (server, _, key):
        asked = server.client.options("/v1/answer", headers={"Origin": "https://good.example", **preflight})
        assert asked.status_code == 401


def test_a_request_has_an_id_of_the_servers_and_the_log_has_that_of_its_client_too(lines):
    with lm_server() as lm, served(program(lm)) as server:
        for given in ("abc-1.2_3", "abc-1.2_3", "a b", "x" * 65, "<script>"):
            reply = server.client.post("/v1/answer", json={"question": " "}, headers={"X-Request-ID": given})
            assert reply.json()["error"]["request_id"] == reply.headers["X-Request-ID"] != given
        batch = server.client.post("/v1/answer/batch", json={"questions": [" "]}, headers={"X-Request-ID": "abc"})
        assert batch.json()["answers"][0]["error"]["request_id"] == batch.headers["X-Request-ID"]
    assert [line["client_request_id"] for line in lines] == ["abc-1.2_3"] * 2 + [""] * 3 + ["abc"]
    assert len({line["request_id"] for line in lines}) == 6


def test_the_log_has_a_line_for_each_request(tmp_path, lines, sample_retriever):
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.add("ann")
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever), keys=keys.path) as server:
        ask = {"json": {"question": QUESTION}, "headers": {**bearer(key), "X-Request-ID": "r1"}}
        first = server.client.post("/v1/answer", **ask)
        usage = first.json()["usage"]
        ask["headers"]["Accept"] = "text/event-stream"
        assert "event: answer" in server.client.post("/v1/answer", **ask).text
        while len(lines) < 2:  # it is written when the whole reply is sent
            time.sleep(0.01)
        server.client.get(f"/v1/none/{key}")
        server.client.get("/v1/program", params={"name": "other"}, headers=bearer(key))
    whole, streamed, unknown, other = sorted(lines, key=lambda line: line["status"])  # as they ended: in any order
    for line in (whole, streamed):
        assert line["time"] and line["seconds"] > 0
        about = {name: line[name] for name in line if name not in ("time", "seconds", "request_id")}
        assert about == {
            "level": "info",
            "logger": "typedrag.requests",
            "message": "request",
            "client_request_id": "r1",
            "method": "POST",
            "path": "/v1/answer",
            "status": 200,
            "address": "127.0.0.1",
            "key": "ann",
            "program": "typed_rag",
            "type": "reason",
            "lm_calls": usage["lm_calls"],
            "tokens": usage["prompt_tokens"] + usage["completion_tokens"],
            "dollars": None,
            "fallback": False,
            "error": "",
        }
    assert first.headers["X-Request-ID"] in (whole["request_id"], streamed["request_id"])
    assert (unknown["status"], unknown["path"], unknown["key"], unknown["error"]) == (401, "", "", "invalid_api_key")
    assert (other["status"], other["path"], other["error"]) == (404, "/v1/program", "no_such_program")
    assert key not in json.dumps(lines) and "bread" not in json.dumps(lines)


def test_the_log_has_questions_where_they_are_wanted(lines):
    with lm_server() as lm, served(program(lm), log_questions=True) as server:
        server.client.post("/v1/answer/batch", json={"questions": ["Why\n\x1b[31m?", "How?"]})
    assert lines[0]["questions"] == ["Why\n\x1b[31m?", "How?"]
    assert (lines[0]["lm_calls"], lines[0]["status"]) == (2, 200)


def test_a_stream_that_ends_in_an_error_or_without_its_client_is_logged_so(lines, sample_retriever):
    fails = {"n": 0}

    def reply(call):
        fails["n"] += 1
        return (500, "no") if fails["n"] > 1 else None

    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        headers = {"Accept": "text/event-stream", "X-Request-ID": "r1"}
        said = server.client.post("/v1/answer", json={"question": QUESTION}, headers=headers).text
        assert "event: error" in said and '"request_id": "' in said
    assert lines[0]["error"] == "lm_failed"
    with lm_server(seconds=1) as lm, served(program(lm)) as server, pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/answer", json={"question": "Why?"}, timeout=0.2)
    assert lines[-1]["error"] == "client_left"


def test_an_lm_that_is_called_by_its_path_is_told_by_its_name():
    with lm_server() as lm:
        named = program(lm)
        named.lm.model = "typedrag-local//srv/secret/models/qwen"
        with served(named) as server:
            assert server.client.get("/v1/program").json()["lm"] == "qwen"


def test_no_error_tells_of_the_machine(tmp_path, sample_index, monkeypatch):
    """Of the LM, of a program and of the server itself; the fuzzer reads those of requests."""
    secrets = f"{sample_index} with {SECRET} at http://10.1.2.3"

    def reply(call):
        statuses = [code for code in (400, 401, 429, 500) if str(code) in call.question]
        if statuses and (statuses != [400] or "answer" in call.wanted):
            return statuses[0], f"Traceback: {secrets}"
        return f"<html>{secrets}</html>" if "html" in call.question else None

    errors = {"broken": OSError(2, SECRET, str(sample_index)), "unusable": InputError(secrets, f"Name no {secrets}")}
    with lm_server(reply=reply) as lm:
        programs = [program(lm, name, BM25Retriever(sample_index), api_key=SECRET) for name in ("rag", "typed_rag")]
        for name, error in errors.items():
            programs.append(failing := program(lm, api_key=SECRET))
            object.__setattr__(failing, "name", name)
            monkeypatch.setattr(failing.program, "respond", Mock(side_effect=error))
        asked = [{"question": f"Why does bread {word}?"} for word in ("401", "429", "500", "html")]
        asked.append({"question": "Why does homemade bread turn out dense and heavy 400?", "program": "typed_rag"})
        asked += [{"question": "Why?", "program": name} for name in errors]
        with served(*programs, breaker_failures=100) as server:
            replies = [
                server.client.post("/v1/answer", json=body, headers={"Accept": accept})
                for accept in ("*/*", "text/event-stream")
                for body in asked
            ]
            batch = {"questions": ["Why 500?", "Why?"], "program": "broken"}
            replies.append(server.client.post("/v1/answer/batch", json=batch))
    said = [reply.text + str(reply.headers) for reply in replies]
    for kind in ("the LM refused the request;", "lm_failed", "lm_unavailable", "internal_error"):
        assert any(kind in text for text in said)
    hidden = (SECRET, lm.api_base.split("/")[2], str(sample_index), "10.1.2.3", "Traceback", ".py", "typedrag.")
    assert not [(secret, text) for secret in hidden for text in said if secret in text]


def test_keys_that_are_made_and_revoked_count_without_a_restart(tmp_path):
    with keyed(tmp_path) as (server, keys, key):
        about = "/v1/program"
        new = keys.add("bob")
        assert server.client.get(about, headers=bearer(new)).status_code == 200
        keys.revoke("ann")
        assert server.client.get(about, headers=bearer(key)).status_code == 401
        assert server.client.get(about, headers=bearer(new)).status_code == 200
