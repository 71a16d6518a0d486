"""Libraries that speak OpenAI's APIs, and a client generated from the OpenAPI document, against a real server."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.environments import install, new_environment
from tests.lm_server import lm_server
from tests.serving.server import program, served
from tests.serving.test_openai import ANSWER, QUESTION, reply
from typedrag.serving.keys import KeyFile

pytestmark = pytest.mark.install
SCRIPTS = Path(__file__).parent / "clients"
CITED = [f"bread-{n}" for n in range(1, 9)]
"""Passages of the sample about bread."""


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without typedrag."""
    return new_environment(tmp_path_factory.mktemp("clients"))


def run(python: Path, script: str, *arguments: str, path: Path = SCRIPTS) -> Any:
    """What a script prints, which imports from a folder."""
    variables = os.environ | {"PYTHONPATH": str(path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run([python, SCRIPTS / script, *arguments], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("package", "script", "apis"),
    [
        ("langchain-openai", "ask_langchain.py", {"chat", "responses"}),
        ("llama-index-llms-openai-like", "ask_llama_index.py", {"chat"}),
        ("litellm", "ask_litellm.py", {"chat", "responses"}),
    ],
)
def test_a_library_gets_answers_streams_and_errors_in_words(package, script, apis, environment, sample_retriever):
    install(environment, package)
    with lm_server(reply=reply, pause=0.01) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        made = run(environment, script, f"{server.url}/v1", QUESTION)
    assert made.keys() == apis
    for api, shown in made.items():
        texts = {shown[name] for name in ("text", "streamed", "turns", "awaited") if name in shown}
        assert texts == {ANSWER}
        assert set(shown["tokens"]) == {220}
        if (package, api) != ("langchain-openai", "chat"):  # it drops annotations
            assert shown["sources"] and set(shown["sources"]) <= set(CITED)
        assert shown["refused"]
        for code, param, message in shown["refused"]:
            # LiteLLM leaves both in the message for Responses
            assert (code in ("invalid_request", "unsupported") and param) or '"code":"unsupported"' in message
            assert any(words in message for words in ("n: Input", "Input should be", "No tool", "Only the server"))


def test_a_generated_client_calls_each_path(environment, sample_retriever, tmp_path):
    install(environment, "openapi-python-client")
    keys = tmp_path / "keys.json"
    key = KeyFile(keys).add("ann")
    limits = {"keys": keys, "feedback": tmp_path / "feedback.sqlite"}
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever), **limits) as server:
        headers = {"Authorization": f"Bearer {key}"}
        (tmp_path / "openapi.json").write_text(server.client.get("/openapi.json", headers=headers).text)
        generate = [environment.with_name("openapi-python-client"), "generate", "--path", tmp_path / "openapi.json"]
        generate += ["--output-path", tmp_path / "typedrag_client", "--meta", "none", "--fail-on-warning"]
        path = f"{environment.parent}{os.pathsep}{os.environ['PATH']}"  # it formats by the ruff beside it
        done = subprocess.run(generate, capture_output=True, text=True, env=os.environ | {"PATH": path})
        assert done.returncode == 0, done.stdout + done.stderr
        made = run(environment, "ask_generated.py", server.url, QUESTION, key, path=tmp_path)
        operations = [*server.client.get("/openapi.json", headers=headers).json()["paths"].values()]
    assert len(made) >= sum(map(len, operations))
    steps, covered, sources = made.pop("steps"), made.pop("covered"), made.pop("sources")
    assert steps and covered and sources and set(sources) <= set(CITED)
    assert made == {
        "answer": ANSWER,
        "type": "reason",
        "grounded": True,
        "batch": [[ANSWER, None], [None, "invalid_question"]],
        "chat": ANSWER,
        "responses": ANSWER,
        "about": "reason",
        "support": ["1"],
        "feedback": 204,
        "models": ["typed_rag"],
        "model": "typed_rag",
        "program": "typed_rag",
        "unknown": "model_not_found",
        "wrong": "invalid_question",
        "refused": "invalid_request_error",
        "alive": "ok",
        "ready": "ready",
        "metrics": True,
    }
