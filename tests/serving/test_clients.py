"""Clients as they are: long chats, retries, silence, and those that show no annotations."""

import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.lm_server import lm_server
from tests.serving.server import program, served
from tests.serving.test_openai import ANSWER, CHAT, QUESTION, ask, client, reply, texts
from typedrag.serving import responses
from typedrag.serving.settings import Settings

SOURCES = f"{ANSWER}\n\nSources:\n[1] "


def test_a_long_chat_is_answered_from_its_last_turns():
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"Turn {n}. " + "x" * 1800} for n in range(44)]
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        made = client(server).chat.completions.with_raw_response.create(model="", messages=[*turns, CHAT[-1]])
        assert len(made.http_request.content) > 80_000
        asked = str(lm.calls[0].request)
    assert made.headers["X-Typedrag-Turns-Read"] == "6 of 44"
    assert "Turn 38." in asked and "Turn 37." not in asked
    assert made.parse().choices[0].message.content.endswith(ANSWER)


def test_a_long_message_stands_alone():
    message = "And why not with rye? " + "I took rye flour of the mill. " * 25
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        made = client(server).chat.completions.with_raw_response.create(
            model="", messages=[*CHAT[:3], {"role": "user", "content": message}]
        )
        assert lm.asked("standalone_question") == []
    assert made.headers["X-Typedrag-Turns-Read"] == "0 of 2"
    assert made.parse().typedrag["question"] == message.strip()


def test_a_question_that_takes_too_long_is_not_asked_again():
    with lm_server(seconds=1) as lm, served(program(lm), deadline=0.3) as server:
        retrying = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=2)
        with pytest.raises(openai.InternalServerError) as failure:
            retrying.chat.completions.create(model="", messages=CHAT[1:2])
        assert failure.value.response.headers["X-Should-Retry"] == "false"
        assert (failure.value.status_code, len(lm.calls)) == (504, 1)


def test_eighty_at_once_are_answered_and_those_refused_come_back_at_different_times():
    with (
        lm_server(reply=reply, seconds=0.05) as lm,
        served(program(lm), running=8, rate=Settings().rate) as server,
        ThreadPoolExecutor(80) as pool,
    ):
        answered = list(pool.map(lambda n: ask(server, [{"role": "user", "content": f"Why {n}?"}]), range(80)))
        assert len(answered) == 80
    go_on = threading.Event()
    with (
        lm_server(reply=lambda call: go_on.wait(60) and None) as lm,
        served(program(lm), running=1, queue=0) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(server.ask, "Why?")
        while not server.under_way:
            pass
        refused = [server.ask(f"Why {n}?") for n in range(20)]
        go_on.set()
        assert first.result().status_code == 200
    assert {r.status_code for r in refused} == {429}
    waits = {int(r.headers["Retry-After"]) for r in refused}
    assert len(waits) > 1 and min(waits) >= 1 and max(waits) <= 3


@pytest.mark.parametrize("stream", [False, True])
def test_sources_follow_the_text_where_the_server_or_the_client_says_so(stream, sample_retriever):
    def said(server, **body) -> str:
        made = ask(server, stream=stream, extra_body=body)
        return texts(made) if stream else made.choices[0].message.content

    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        assert said(server) == ANSWER
        assert said(server, sources_in_text=True).startswith(SOURCES)
    with (
        lm_server(reply=reply) as lm,
        served(program(lm, "typed_rag", sample_retriever), sources_in_text=True) as server,
    ):
        assert said(server).startswith(SOURCES)
        assert said(server, sources_in_text=False) == ANSWER


def test_what_is_not_served_says_what_is():
    with lm_server() as lm, served(program(lm)) as server:
        with pytest.raises(openai.NotFoundError, match="/v1/completions is not served: ask POST /v1/chat/completions"):
            client(server).completions.create(model="", prompt=QUESTION)
        with pytest.raises(openai.NotFoundError, match="/v1/embeddings is not served"):
            client(server).embeddings.create(model="", input=QUESTION)


def test_a_name_that_a_server_without_keys_does_not_know_is_named_with_its_mend():
    docker = {"Host": "host.docker.internal:8000"}
    with lm_server() as lm, served(program(lm)) as server:
        refused = server.client.get("/v1/models", headers=docker)
        strange = server.client.get("/v1/models", headers={"Host": "<b>:80"})
    assert refused.status_code == strange.status_code == 421
    assert "start it with --hosts host.docker.internal" in refused.json()["error"]["message"]
    assert "--hosts NAME" in strange.json()["error"]["message"]
    with lm_server() as lm, served(program(lm), hosts=("host.docker.internal",)) as server:
        assert server.client.get("/v1/models", headers=docker).status_code == 200
        assert server.client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/answer"])
def test_a_stream_is_not_silent_before_its_first_event(path, monkeypatch):
    monkeypatch.setattr(responses, "_PING_SECONDS", 0.1)
    body = {"question": QUESTION}
    if path != "/v1/answer":
        body = {"input" if path == "/v1/responses" else "messages": CHAT[1:2], "stream": True}
    events = {"Accept": "text/event-stream"}
    with (
        lm_server(reply=lambda call: (500, "no"), seconds=0.5) as lm,
        served(program(lm), running=1) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(server.ask, "Why?")
        while not server.under_way:
            pass
        failed = server.client.post(path, json=body, headers=events)  # it waits for the other
        at_once = server.client.post("/v1/answer", json={"question": " "}, headers=events)
        lm.reply = reply
        with client(server).chat.completions.create(model="", messages=CHAT, stream=True) as stream:
            assert texts(stream).endswith(ANSWER)
    assert failed.status_code == 200 and failed.text.startswith(": still at it\n\n")
    assert "lm_failed" in failed.text
    assert (at_once.status_code, at_once.json()["error"]["code"]) == (422, "invalid_question")
