import threading

import httpx
import pytest

from tests.lm_server import MODEL, lm_server
from tests.serving.metrics import counted
from tests.serving.server import program, served
from typedrag.core.records import Answer
from typedrag.serving.programs import ProgramSpec

QUESTION = "Why does homemade bread turn out dense and heavy?"


def test_what_a_question_took_is_counted(sample_retriever):
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        answer = Answer.from_dict(server.ask(QUESTION).json())
        count = counted(server)
    assert count("requests_total", path="/v1/answer", status="200") == 1
    assert count("request_seconds_count", path="/v1/answer") == 1
    assert count("questions_total", program="typed_rag", outcome="answered") == 1
    assert count("question_seconds_count", program="typed_rag", type="reason") == 1
    assert count("question_seconds_sum") == answer.seconds
    assert count("answer_seconds_count") == 1
    names = [step.name for top in answer.steps for step in top.walk() if step.name != "query"]  # which is not told of
    assert {name: count("step_seconds_count", step=name) for name in names} == {n: names.count(n) for n in names}
    assert count("questions_total", outcome="left") == 0
    assert count("lm_calls_total") == len(lm.calls) == answer.usage.lm_calls
    assert count("lm_tokens_total", direction="read") == 100 * len(lm.calls)
    assert count("lm_tokens_total", direction="written") == 10 * len(lm.calls)
    assert (count("lm_dollars_total"), count("lm_calls_unpriced_total")) == (0, len(lm.calls))
    assert (count("running"), count("waiting"), count("breaker_open"), count("fallbacks_total")) == (0, 0, 0, 0)


def test_nothing_that_strangers_write_is_a_label():
    with lm_server() as lm, served(program(lm)) as server:
        for path in ("/secret-path", "/v1/secret-path", "/v1/program?name=secret-name"):
            server.client.get(path)
        server.ask("What is my secret-question?", program="secret-program")
        server.ask("What is my secret-question?")
        server.client.request("SECRETMETHOD", "/v1/answer")
        server.client.post("/mcp", json={})
        page = server.client.get("/metrics").text
        count = counted(server)
    assert "secret" not in page.lower()
    assert count("requests_total", path="other") == count("requests_total", path="other", status="404") == 2
    assert count("requests_total", path="/mcp") == 1
    assert count("refused_total", code="no_such_program", status="404") == 2


def test_failures_and_fallbacks_are_counted(sample_retriever):
    with (
        lm_server() as lm,
        served(program(lm, "typed_rag", sample_retriever), program(lm), question_tokens=100) as server,
    ):
        assert server.ask(QUESTION).json()["fallback"]
        server.ask(" ", program="direct_lm")
        lm.reply = lambda call: (503, "gone")
        failed = server.ask("Why?", program="direct_lm")
        count = counted(server)
    assert count("fallbacks_total", program="typed_rag") == 1
    assert count("questions_total", program="direct_lm", outcome="invalid_question") == 1
    assert failed.status_code == 503
    assert count("questions_total", program="direct_lm", outcome=failed.json()["error"]["code"]) == 1
    assert count("refused_total", status="503") == 1


STREAM = {"Accept": "text/event-stream"}
CALL = {"name": "ask", "arguments": {"question": "Why so?"}}
LATE = {
    "whole": ("/v1/answer", {"question": "Why?"}, {}, 504),
    "events": ("/v1/answer", {"question": "Why?"}, STREAM, 200),
    "chunks": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}], "stream": True}, {}, 200),
    "batch": ("/v1/answer/batch", {"questions": ["Why?"]}, {}, 200),
    "agent": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}, STREAM, 200),
}


@pytest.mark.parametrize("kind", LATE)
def test_a_deadline_is_counted_however_it_is_told(kind, caplog, monkeypatch):
    path, body, headers, status = LATE[kind]
    monkeypatch.setattr("typedrag.serving.responses._PING_SECONDS", 0.1)  # streams begin with a comment
    headers = {**headers, "Accept": f"application/json, {headers['Accept']}"} if headers else {}
    with lm_server(seconds=3) as lm, served(program(lm), deadline=0.5) as server, caplog.at_level("INFO"):
        reply = server.client.post(path, json=body, headers=headers)
        while server.under_way or not (count := counted(server))("requests_total", path=path):
            pass
    assert reply.status_code == status
    assert count("refused_total", status="504", code="deadline") == 1
    assert (count("answer_seconds_count"), count("answer_seconds_sum") > 0.4) == (1, True)
    assert count("questions_total", program="direct_lm", outcome="deadline") == 1
    assert count("questions_total", outcome="left") == 0
    [line] = [record for record in caplog.records if record.getMessage() == "request"]
    assert (line.levelname, line.values["error"], line.values["status"]) == ("WARNING", "deadline", status)
    assert "a question has no answer: its deadline of 0.5 s has passed" in caplog.messages


def test_questions_that_run_and_wait_are_seen_and_so_are_those_given_up():
    asked = threading.Event()
    go_on = threading.Event()

    def hold(_: object) -> None:
        asked.set()
        go_on.wait(30)

    with lm_server(reply=hold) as lm, served(program(lm), running=1, breaker_failures=1) as server:
        threads = [threading.Thread(target=server.ask, args=(f"Why {n}?",)) for n in range(3)]
        for thread in threads:
            thread.start()
        assert asked.wait(30)
        count = counted(server)
        while count("waiting") < 2:
            count = counted(server)
        assert count("running") == 1
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/answer", json={"question": "Why not?"}, timeout=0.2)
        while not count("questions_total", outcome="left"):
            count = counted(server)
        go_on.set()
        for thread in threads:
            thread.join()
        lm.reply = lambda call: (503, "gone")
        server.ask("Why?")
        assert counted(server)("breaker_open") == 1


def test_a_served_lm_keeps_no_prompts():
    with lm_server() as lm:
        source = ProgramSpec("direct_lm", f"vllm:{MODEL}", {"api_base": lm.api_base, "cache": False})
        opened = source.open()
        with served(opened) as server:
            server.ask("Why?")
            assert counted(server)("lm_calls_total") == len(lm.calls) == 1
    assert opened.lm.history == []
