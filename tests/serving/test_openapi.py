"""The OpenAPI document against what the server sends."""

from typing import Any

import httpx
import schemathesis

from tests.lm_server import lm_server
from tests.serving.index_server import served_index
from tests.serving.server import program, served
from tests.serving.test_fuzz import DOCUMENTED
from tests.serving.test_openai import QUESTION, reply
from typedrag.serving.keys import KeyFile

EVENTS = {"Accept": "text/event-stream"}
CHAT = {"messages": [{"role": "user", "content": QUESTION}]}
CITED = {"question": QUESTION, "answer": "Yeast makes gas.", "passages": [{"id": "1", "text": "Yeast makes a gas."}]}
ASKED = [
    ("/v1/answer", {"question": QUESTION}, {}),
    ("/v1/answer", {"question": QUESTION}, EVENTS),
    ("/v1/answer/batch", {"questions": [QUESTION, " "]}, {}),
    ("/v1/coverage", {"question": QUESTION, "answer": "Yeast makes gas."}, {}),
    ("/v1/support", CITED, {}),
    ("/v1/chat/completions", CHAT, {}),
    ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}, {}),
    ("/v1/responses", {"input": QUESTION}, {}),
    ("/v1/responses", {"input": QUESTION, "stream": True}, {}),
]


def call(server: Any, path: str, method: str = "POST", **values):
    """A reply, after it was found to be as the document says, which is a valid one."""
    document = schemathesis.openapi.from_dict(httpx.get(f"{server.url}/openapi.json").json())
    document.validate()
    case = document[path][method].Case(**values)
    made = case.call(base_url=server.url, timeout=60)
    case.validate_response(made, checks=DOCUMENTED)
    return made


def test_answers_and_streams_are_as_documented(sample_retriever):
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        for path, body, headers in ASKED:
            made = call(server, path, headers=headers, body=body)
            assert made.status_code == 200, made.text
            streamed = bool(headers or body.get("stream"))
            kind = "text/event-stream" if streamed else "application/json"
            assert made.headers["content-type"][0].startswith(kind)


def test_errors_of_questions_are_as_documented(sample_retriever):
    with (
        lm_server(reply=lambda call: (500, "out of memory")) as lm,
        served(program(lm, "typed_rag", sample_retriever)) as server,
    ):
        for path, body, headers in ASKED:
            if path != "/v1/support":
                assert '"request_id"' in call(server, path, headers=headers, body=body).text


def test_the_server_s_own_paths_are_as_documented(tmp_path, sample_retriever):
    limits = {"feedback": tmp_path / "feedback.sqlite", "body_bytes": 65_536}
    with lm_server() as lm, served(program(lm, "rag", sample_retriever), **limits) as server:
        for path in ("/v1/models", "/v1/program", "/healthz", "/readyz", "/metrics"):
            assert call(server, path, "GET").status_code == 200
        assert call(server, "/metrics", "GET", headers={"Accept": "application/openmetrics-text"}).status_code == 200
        assert call(server, "/v1/models/{model}", "GET", path_parameters={"model": "rag"}).status_code == 200
        assert call(server, "/v1/models/{model}", "GET", path_parameters={"model": "gpt"}).status_code == 404
        rated = {"request_id": server.ask("Why?").headers["X-Request-ID"], "rating": "up"}
        assert call(server, "/v1/feedback", body=rated).status_code == 204
        assert call(server, "/v1/feedback", body={**rated, "request_id": "none"}).status_code == 404
        assert call(server, "/v1/answer", body={"question": "x" * 70_000}).status_code == 413
        lm.models = 500
        server.service.admission.stopping = True
        assert call(server, "/readyz", "GET").status_code == 503
        assert call(server, "/v1/answer", body={"question": "Why?"}).status_code == 503


def test_an_index_server_s_paths_are_as_documented(sample_retriever):
    with served_index(sample_retriever) as server:
        assert call(server, "/v1/search", body={"queries": ["bread"], "k": 2, "bm25": {}}).status_code == 200
        assert call(server, "/v1/search", body={"queries": ["bread"], "k": 0}).status_code == 422
        for path in ("/v1/index", "/healthz", "/readyz", "/metrics"):
            assert call(server, path, "GET").status_code == 200
        assert call(server, "/v1/index", "GET", query={"k1": -1}).status_code == 422
        for passage in ("bread-1", "no such"):
            assert call(server, "/v1/passage", "GET", query={"id": passage}).status_code == 200
        assert call(server, "/v1/passage", "GET", query={"id": "x" * 10_001}).status_code == 422


def test_keys_and_limits_are_as_documented(tmp_path):
    keys = tmp_path / "keys.json"
    key = KeyFile(keys).add("ann", rate=4)
    with lm_server() as lm, served(program(lm), keys=keys) as server:
        bearer = {"Authorization": f"Bearer {key}"}
        document = server.client.get("/openapi.json", headers=bearer).json()
        assert document["paths"]["/v1/models"]["get"]["security"] == [{"bearer": []}, {"header": []}]
        assert document["paths"]["/readyz"]["get"]["security"] == []
        operation = schemathesis.openapi.from_dict(document)["/v1/models"]["GET"]
        statuses = []
        for headers in ({}, bearer, {"X-API-Key": key}, bearer, bearer):
            case = operation.Case(headers=headers)
            made = case.call(base_url=server.url)
            case.validate_response(made, checks=DOCUMENTED)
            statuses.append(made.status_code)
        assert statuses == [401, 200, 200, 200, 429]
        assert int(made.headers["retry-after"][0]) > 0
    with lm_server() as lm, served(program(lm)) as server:
        document = server.client.get("/openapi.json").json()
        assert {} in document["paths"]["/v1/models"]["get"]["security"]
