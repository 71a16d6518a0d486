import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.lm_server import MODEL, LMServer, lm_server
from tests.mlflow_stores import mlflow_server, new_store
from tests.serving.otlp import Receiver, receiver
from tests.serving.process import process
from typedrag.core.errors import InputError
from typedrag.core.records import Answer
from typedrag.serving.server import open_tracing
from typedrag.serving.settings import Settings

QUESTION = "Why does homemade bread turn out dense and heavy?"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def traced(
    index: Path, folder: Path, *arguments: str, sampled: str = "01", **environment: str
) -> tuple[Receiver, httpx.Response, LMServer]:
    """What a server sends of one question that belongs to a trace, when it has ended, its reply, and its LM."""
    given = ("--program", "typed_rag", "--index", str(index), *arguments)
    with (
        receiver() as received,
        lm_server() as lm,
        process(lm, folder, *given, OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint, **environment) as server,
    ):
        server.client.get("/readyz?question=secret")
        server.client.get("/v1/program?name=typed_rag&question=secret", headers={"traceparent": ""})
        lm.traceparents.clear()
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-{sampled}"}
        reply = server.client.post("/v1/answer", json={"question": QUESTION}, headers=headers)
        assert reply.status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 143
    return received, reply, lm


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_request_its_modules_searches_and_lm_calls_are_one_tree_of_the_callers_trace(sample_index, tmp_path):
    received, reply, lm = traced(sample_index, tmp_path, OTEL_SERVICE_NAME="answers")
    answer = Answer.from_dict(reply.json())
    assert received.services == {"answers"}
    [request] = [span for span in received.spans if span.name == "POST /v1/answer"]
    [other] = [span for span in received.spans if span.name == "GET /v1/program"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert other.trace_id != request.trace_id
    spans = {span.span_id: span for span in received.spans if span.trace_id == request.trace_id}
    for span in spans.values():
        if span is not request:
            parent = spans[span.parent_span_id]
            assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    [program] = [span for span in spans.values() if span.parent_span_id == request.span_id]
    assert program.name == "invoke_agent typed_rag"
    chats = [span for span in spans.values() if span.name == f"chat {MODEL}"]
    assert len(chats) == answer.usage.lm_calls and {span.kind for span in chats} == {Span.SPAN_KIND_CLIENT}
    assert attributes(chats[0])["gen_ai.operation.name"] == "chat"
    read = [attributes(span).get("gen_ai.usage.input_tokens", 0) for span in spans.values()]
    assert sum(read) == answer.usage.prompt_tokens
    assert {header.split("-")[2] for header in lm.traceparents} == {span.span_id.hex() for span in chats}
    assert [span for span in spans.values() if span.name == "retrieve"]
    said = attributes(request)
    assert (said["typedrag.question_type"], said["typedrag.lm_calls"]) == ("reason", answer.usage.lm_calls)
    assert said["http.response.status_code"] == 200
    sent = b"".join(request.SerializeToString() for request in received.requests)
    assert b"bread" not in sent and b"secret" not in sent


def test_an_lm_s_failure_is_an_error_of_its_span(tmp_path):
    with (
        receiver() as received,
        lm_server(reply=lambda call: (400, "no")) as lm,
        process(lm, tmp_path, "--program", "direct_lm", OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint) as server,
    ):
        assert server.ask("Why?").status_code == 503
        server.process.send_signal(signal.SIGTERM)
        server.wait()
    failed = {span.name: attributes(span).get("error.type") for span in received.spans if span.status.code == 2}
    assert failed[f"chat {MODEL}"] and failed["invoke_agent direct_lm"]


def test_texts_are_sent_where_they_may_be(sample_index, tmp_path):
    received, _, _ = traced(sample_index, tmp_path, "--log-questions")
    assert received.services == {"typedrag"}
    assert any("bread" in attributes(span).get("input.value", "") for span in received.spans)


@pytest.mark.parametrize(("sampled", "environment"), [("00", {}), ("01", {"OTEL_SDK_DISABLED": "true"})])
def test_what_is_not_sampled_is_not_sent(sample_index, tmp_path, sampled, environment):
    received, _, _ = traced(sample_index, tmp_path, sampled=sampled, **environment)
    assert not [span for span in received.spans if span.name != "GET /v1/program"]


def test_a_collector_that_is_gone_keeps_nobody_from_an_answer_nor_the_server_from_its_end(tmp_path):
    with receiver() as gone:
        pass
    with (
        lm_server() as lm,
        process(lm, tmp_path, "--program", "direct_lm", OTEL_EXPORTER_OTLP_ENDPOINT=gone.endpoint) as server,
    ):
        assert server.ask("Why?").status_code == 200
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 143
        assert time.monotonic() - begun < 20


def test_exporters_are_those_of_the_standard_variables(monkeypatch):
    assert open_tracing(Settings()) is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    tracing = open_tracing(Settings())
    assert tracing is not None
    tracing.close()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(InputError, match="no exporter 'otlp_proto_grpc'") as raised:
        open_tracing(Settings())
    assert raised.value.hint == "pip install opentelemetry-exporter-otlp-proto-grpc"
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert open_tracing(Settings()) is None


def test_mlflow_takes_the_spans_and_shows_question_and_answer(sample_index, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    with mlflow_server(new_store(tmp_path / "store")) as uri:
        client = mlflow.MlflowClient(uri)
        experiment = client.create_experiment("answers")
        variables = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{uri}/v1/traces",
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-mlflow-experiment-id={experiment}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "100",  # MLflow imports LiteLLM for the price of its first LM call
        }
        arguments = ("--program", "typed_rag", "--index", str(sample_index), "--log-questions")
        with lm_server() as lm, process(lm, tmp_path / "cache", *arguments, **variables) as server:
            reply = server.ask(QUESTION)
            until = time.monotonic() + 100
            while not (traces := client.search_traces([experiment])):
                assert time.monotonic() < until
                time.sleep(0.5)
    [trace] = [trace for trace in traces if trace.data.spans[0].name == "POST /v1/answer"]
    answer = Answer.from_dict(reply.json())
    [root] = [span for span in trace.data.spans if span.parent_id is None]
    assert (root.inputs, root.outputs) == (QUESTION, answer.answer)
    assert root.attributes["typedrag.request_id"] == reply.headers["X-Request-ID"]
    names = [span.name for span in trace.data.spans]
    assert names.count(f"chat {MODEL}") == answer.usage.lm_calls and "invoke_agent typed_rag" in names
