import traceback
from pathlib import Path

import pytest

from tests.experiments.compiles import about
from tests.programs.artifact.test_compiled import compiled, edit
from typedrag.core.errors import InputError, Unavailable
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled

mlflow = pytest.importorskip("mlflow")

KEY = "sk-a-planted-key-0123456789"
QUESTION = "How do vaccines protect the body against disease?"


def saved(folder: Path, **options: object) -> Path:
    from mlflow.models import Model

    from typedrag.experiments.tracking.served_model import save_served_program

    save_compiled(compiled("rag", Options(top_k=3)), folder / "program", about())
    if options:
        edit(folder / "program", "program.json", options=options)
    save_served_program(folder / "program", folder / "model", Model())
    return folder / "model"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of a compiled rag that retrieves three passages."""
    return saved(tmp_path_factory.mktemp("served"))


@pytest.fixture
def environment(server, sample_index, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    monkeypatch.setenv("TYPEDRAG_LM", "vllm:stub")
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.setenv("TYPEDRAG_API_KEY", KEY)
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))


@pytest.mark.usefixtures("environment")
def test_a_batch_of_questions_gives_a_row_each_in_the_same_order(model, server):
    import pandas as pd

    served = mlflow.pyfunc.load_model(str(model))
    assert server.calls == []
    rows = served.predict([{"question": QUESTION}, {"question": " "}, {"question": "Why does bread rise?"}])
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    first, empty, _ = rows
    assert first["answer"]
    assert len(first["passages"]) == 3
    assert set(first["citations"]) <= set(first["passages"])
    assert (first["lm_calls"], first["tokens"], first["fallback"]) == (1, 110, "")
    assert (first["answered"], first["grounded"], empty["answered"]) == ("passages", True, "")
    assert first["seconds"] > 0
    assert "question" in empty["error"]
    assert (empty["answer"], empty["lm_calls"], empty["passages"]) == (None, 0, [])
    assert server.asked("answer").count(QUESTION) == 1
    names = [column.name for column in served.metadata.signature.outputs]
    assert sorted(first) == sorted(names)
    missing, there = served.predict([{"question": None}, {"question": QUESTION}])
    assert "question" in missing["error"] and not there["error"]
    assert "nan" not in server.asked("answer")
    assert served.predict(pd.DataFrame({"question": [QUESTION], "id": ["q1"]}))[0]["passages"] == first["passages"]


@pytest.mark.usefixtures("environment")
def test_a_question_whose_answer_cannot_be_read_fails_alone_and_tells_no_secret(model, server):
    secrets = f"{server.api_base} does not know {KEY}"
    server.reply = lambda call: (400, secrets) if call.question == QUESTION else None
    rows = mlflow.pyfunc.load_model(str(model)).predict([{"question": QUESTION}, {"question": "Why does bread rise?"}])
    assert rows[1]["error"] == rows[1]["fallback"] == ""
    assert rows[0]["error"] or rows[0]["fallback"]
    assert KEY not in str(rows)
    assert server.api_base not in str(rows)


def served(model):
    from fastapi.testclient import TestClient
    from mlflow.pyfunc.scoring_server import init

    return TestClient(init(mlflow.pyfunc.load_model(str(model))))


def asked(client, *questions):
    return client.post("/invocations", json={"dataframe_records": [{"question": q} for q in questions]})


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("status", [401, 400])
def test_a_server_says_in_a_line_that_its_lm_cannot_be_used(model, server, status):
    server.reply = lambda call: (status, f"no {KEY}")
    reply = asked(served(model), QUESTION, "Why does bread rise?")
    assert reply.status_code == 503
    told = reply.json()["message"]
    assert told.startswith("LM 'typedrag-local/stub' cannot be used: ") and "no [hidden]" in told
    assert [part for part in ("\\n", "Traceback", KEY, QUESTION) if part in reply.text] == []


@pytest.mark.usefixtures("environment")
def test_an_lm_that_cannot_be_opened_does_not_tell_its_address(model, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_BASE", "http://someone:word@127.0.0.1:9/v1")
    with pytest.raises(Unavailable) as raised:
        mlflow.pyfunc.load_model(str(model)).predict([{"question": QUESTION}])
    told = "".join(traceback.format_exception(raised.value))
    assert "no vLLM server answers at [hidden]" in told and "someone" not in told


@pytest.mark.usefixtures("environment")
def test_index_and_lm_can_be_named_where_it_is_loaded(model, sample_index, monkeypatch):
    monkeypatch.delenv("TYPEDRAG_INDEX")
    monkeypatch.setenv("TYPEDRAG_LM", "vllm:other")
    config = {"index": str(sample_index), "lm": "vllm:stub", "threads": 1}
    [row] = mlflow.pyfunc.load_model(str(model), model_config=config).predict([{"question": QUESTION}])
    assert row["answer"]
    without = mlflow.pyfunc.load_model(str(model), model_config={"lm": "vllm:stub"})
    with pytest.raises(InputError, match="needs an index"):
        without.predict([{"question": QUESTION}])


@pytest.mark.usefixtures("environment")
def test_a_key_that_is_none_is_refused_and_a_hanging_lm_is_bounded(model, server, monkeypatch):
    with monkeypatch.context() as given:
        given.setenv("SERVING_MODEL_CONFIG", '{"time_out": 3}')
        with pytest.raises(InputError, match=r"unknown keys: time_out\. Known are: lm, index"):
            mlflow.pyfunc.load_model(str(model))
    server.seconds = 0.5
    served = mlflow.pyfunc.load_model(str(model), model_config={"timeout": 0.1})
    with pytest.raises(Unavailable, match=r"no reply within 0\.1 s, in 2 tries"):
        served.predict([{"question": QUESTION}])


@pytest.mark.usefixtures("environment")
def test_options_that_name_what_does_not_come_with_typedrag_are_named_where_it_is_loaded(tmp_path):
    model = str(saved(tmp_path, relevance="cross-encoder:somebody/model"))
    with pytest.raises(InputError, match="Name relevance yourself"):
        mlflow.pyfunc.load_model(model)
    served = mlflow.pyfunc.load_model(model, model_config={"options": {"relevance": "none", "top_k": 2}})
    [row] = served.predict([{"question": QUESTION}])
    assert len(row["passages"]) == 2


@pytest.mark.usefixtures("environment")
def test_it_holds_neither_key_nor_address(tmp_path, server, sample_index):
    files = {f: f.read_bytes() for f in saved(tmp_path).rglob("*") if f.is_file()}
    assert any(b"Why does bread rise?" in data for data in files.values())
    for secret in (KEY, server.api_base, str(sample_index)):
        assert not [f for f, data in files.items() if secret.encode() in data]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("reply", [(400, "too long"), "<html>Login please</html>"])
def test_what_an_lm_fails_at_is_the_error_of_its_row(model, server, reply):
    server.reply = lambda call: reply if call.question == QUESTION else None
    answered = asked(served(model), "Why does bread rise?", QUESTION, "Why is the sky blue?")
    assert answered.status_code == 200
    rows = answered.json()["predictions"]
    assert [bool(row["answer"]) for row in rows] == [True, False, True]
    assert "cannot be used" in rows[1]["error"] and not rows[0]["error"]


def agent(folder: Path):
    from mlflow.models import Model

    from typedrag.experiments.tracking.served_agent import save_agent

    save_compiled(compiled("rag", Options(top_k=3)), folder / "program", about())
    save_agent(folder / "program", folder / "agent", Model())
    return mlflow.pyfunc.load_model(str(folder / "agent"))


@pytest.mark.usefixtures("environment")
def test_an_agent_answers_the_last_message_of_a_conversation_and_asks_no_lm_when_it_is_saved(tmp_path, server):
    loaded = agent(tmp_path)
    assert server.calls == []
    said = [{"type": "output_text", "text": "They train it."}]
    earlier = [
        {"role": "user", "content": QUESTION},
        {"type": "message", "id": "1", "role": "assistant", "content": said},
    ]
    reply = loaded.predict({"input": [*earlier, {"role": "user", "content": "And why does bread rise?"}]})
    (message,) = reply["output"]
    assert message["content"][0]["text"] and message["role"] == "assistant"
    assert len(reply["custom_outputs"]["passages"]) == 3 and reply["custom_outputs"]["answered"] == "passages"
    standalone, answered = server.calls
    assert "They train it." in str(standalone.request) and answered.wanted != standalone.wanted


@pytest.mark.usefixtures("environment")
def test_an_agent_streams_its_answer_and_says_what_it_cannot_do(tmp_path, server):
    from mlflow.exceptions import MlflowException

    loaded = agent(tmp_path)
    *pieces, done = loaded.predict_stream({"input": [{"role": "user", "content": QUESTION}]})
    assert {piece["type"] for piece in pieces} == {"response.output_text.delta"}
    text = "".join(piece["delta"] for piece in pieces if piece["item_id"] == done["item"]["id"])
    assert text.startswith(done["item"]["content"][0]["text"]) and done["custom_outputs"]["citations"]
    with pytest.raises(MlflowException, match="question is empty") as raised:
        loaded.predict({"input": [{"role": "user", "content": " "}]})
    assert raised.value.get_http_status_code() == 400
    server.reply = lambda call: (401, f"no {KEY}")
    with pytest.raises(MlflowException, match="cannot be used") as raised:
        list(loaded.predict_stream({"input": [{"role": "user", "content": QUESTION}]}))
    assert raised.value.get_http_status_code() == 503 and KEY not in str(raised.value)


@pytest.mark.usefixtures("environment")
def test_a_retriever_can_be_named_where_it_is_loaded(model, sample_retriever, monkeypatch):
    from tests.serving.index_server import served_index

    monkeypatch.delenv("TYPEDRAG_INDEX")
    with served_index(sample_retriever) as index:
        loaded = mlflow.pyfunc.load_model(str(model), model_config={"retriever": index.url})
        [row] = loaded.predict([{"question": QUESTION}])
    assert len(row["passages"]) == 3


@pytest.mark.parametrize(
    ("program", "options", "reranker", "extras"),
    [
        ("direct_lm", {}, "none", "mlflow"),
        ("rag", {}, "none", "mlflow,lucene"),
        ("rag", {}, "lm-listwise", "mlflow,lucene"),
        ("rag", {}, "bi-encoder", "mlflow,lucene,dense"),
        ("typed_rag", {"type_classifier": "embedding"}, "none", "mlflow,lucene,dense"),
        ("preqrag", {}, "none", "mlflow,lucene,dense"),
    ],
)
def test_a_model_requires_what_its_program_needs(tmp_path, program, options, reranker, extras):
    from typedrag.experiments.tracking.served_model import requirement
    from typedrag.programs.compiled import Compiled, build_without_index

    save_compiled(build_without_index(program, Options(**options)), tmp_path / "p", about(), reranker=reranker)
    assert requirement(Compiled.read(tmp_path / "p")).partition("==")[0] == f"typedrag[{extras}]"
