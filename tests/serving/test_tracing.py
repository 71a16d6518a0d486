from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lm_server import lm_server
from tests.mlflow_stores import new_store
from tests.serving.otlp import Receiver, receiver
from tests.serving.process import process
from tests.serving.server import program, served
from typedrag.errors import InputError
from typedrag.records import Answer
from typedrag.serving.tracing import spans_wanted

QUESTION = "Why does homemade bread turn out dense and heavy?"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def traced(
    index: Path, folder: Path, *arguments: str, sampled: str = "01", **environment: str
) -> tuple[Receiver, httpx.Response]:
    """What a server sends of one question that belongs to a trace, when it has ended, and its reply."""
    given = ("--program", "typed_rag", "--index", str(index), *arguments)
    with (
        receiver() as received,
        lm_server() as lm,
        process(lm, folder, *given, OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint, **environment) as server,
    ):
        server.client.get("/readyz?question=secret")
        server.client.get("/v1/program?name=typed_rag&question=secret", headers={"traceparent": ""})
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-{sampled}"}
        reply = server.client.post("/v1/answer", json={"question": QUESTION}, headers=headers)
        assert reply.status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 143
    return received, reply


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_request_is_a_span_of_the_callers_trace_and_its_steps_are_spans_within(sample_index, tmp_path):
    received, reply = traced(sample_index, tmp_path, OTEL_SERVICE_NAME="answers")
    answer = Answer.from_dict(reply.json())
    assert received.services == {"answers"}
    [request] = [span for span in received.spans if span.name == "POST /v1/answer"]
    [other] = [span for span in received.spans if span.name == "GET /v1/program"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert other.trace_id != request.trace_id
    steps = [span for span in received.spans if span not in (request, other)]
    assert {span.parent_span_id for span in steps} == {request.span_id}
    names = [step.name for top in answer.steps for step in top.walk() if step.name != "query"]
    assert sorted(span.name for span in steps) == sorted(names)
    for span in steps:
        assert request.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano
    said = attributes(request)
    assert (said["typedrag.question_type"], said["typedrag.lm_calls"]) == ("reason", answer.usage.lm_calls)
    assert said["http.response.status_code"] == 200
    sent = b"".join(request.SerializeToString() for request in received.requests)
    assert b"bread" not in sent and b"secret" not in sent


def test_texts_are_sent_where_they_may_be(sample_index, tmp_path):
    received, _ = traced(sample_index, tmp_path, "--limit", "log_questions=true")
    assert received.services == {"typedrag"}
    assert any("bread" in attributes(span).get("typedrag.input", "") for span in received.spans)


@pytest.mark.parametrize(
    ("sampled", "environment"),
    [("01", {"OTEL_TRACES_SAMPLER": "always_off"}), ("00", {}), ("01", {"OTEL_SDK_DISABLED": "true"})],
)
def test_what_is_not_sampled_is_not_sent(sample_index, tmp_path, sampled, environment):
    received, _ = traced(sample_index, tmp_path, sampled=sampled, **environment)
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


def test_where_no_variable_is_set_the_sdk_is_not_imported():
    script = """
import sys
from typedrag.serving.run import open_all
from typedrag.serving.settings import Settings
opened = open_all([], Settings())
assert opened.tracer_provider is None and not opened.observers
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "mlflow"))])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_protocol_that_is_not_spoken_is_refused(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(InputError, match="OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"):
        spans_wanted()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert spans_wanted()


def test_mlflow_keeps_the_tree_of_steps_found_by_the_requests_id(sample_index, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = new_store(tmp_path / "store")
    received, reply = traced(sample_index, tmp_path / "cache", "--limit", "traces=1", MLFLOW_TRACKING_URI=uri)
    assert received.spans  # both at once
    answer = Answer.from_dict(reply.json())
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("typedrag-serving").experiment_id
    [trace] = client.search_traces([experiment])
    assert trace.info.tags["typedrag.program"] == "typed_rag"
    assert trace.info.tags["typedrag.request_id"] == reply.headers["X-Request-ID"]
    [root] = [span for span in trace.data.spans if span.parent_id is None]
    assert root.inputs == {"question": QUESTION}
    assert root.outputs["answer"] == answer.answer

    def tree(parent: Any) -> list[Any]:
        children = [span for span in trace.data.spans if span.parent_id == parent.span_id]
        return sorted((span.name, tree(span)) for span in children)

    def steps(of: tuple) -> list[Any]:
        return sorted((step.name, steps(step.steps)) for step in of)

    assert tree(root) == steps(answer.steps)
    assert all(root.start_time_ns - 2e6 <= span.start_time_ns <= span.end_time_ns for span in trace.data.spans)


def test_a_share_of_the_answers_is_kept_and_a_store_that_fails_does_no_harm(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    from typedrag.serving.mlflow_traces import EXPERIMENT, MLflowTraces

    uri = new_store(tmp_path / "store")
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr("random.random", iter([0.9, 0.1, 0.6, 0.4, 0.1]).__next__)
    try:
        with lm_server() as lm, served(program(lm), observers=[MLflowTraces(0.5)]) as server:
            assert [server.ask(f"Why {n}?").status_code for n in range(4)] == [200] * 4
        client = mlflow.MlflowClient(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
        kept = {trace.data.spans[0].inputs["question"] for trace in client.search_traces([experiment])}
        assert kept == {"Why 1?", "Why 3?"}
        with lm_server() as lm, served(program(lm), observers=[MLflowTraces(0.5)]) as server:
            with sqlite3.connect(tmp_path / "store" / "mlflow.db") as database:
                database.execute("ALTER TABLE trace_info RENAME TO gone")
            assert server.ask("Why not?").status_code == 200
    finally:
        mlflow.set_tracking_uri(before)
