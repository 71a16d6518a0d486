"""The options of `typedrag serve` that are no limits, tried on a server of its own."""

import shutil
import subprocess
import sys

import httpx
import pytest

from tests.commands import invoke
from tests.lm_server import lm_server
from tests.serving.process import Process, process

QUESTION = "Why does homemade bread turn out dense and heavy?"


def test_it_takes_settings_of_the_lm_from_a_file_and_keeps_no_reply_if_told_so(tmp_path, sample_index):
    file = tmp_path / "serve.yaml"
    file.write_text(
        f"program: rag\nindex: {sample_index}\ntop-k: 3\ntemperature: 0.5\nmax_tokens: 77\nadapter: chat\n"
        "no-cache: true\noption: {answer_words: 33}\nqueue: 5\n"
    )
    with lm_server() as lm, process(lm, tmp_path, "--config", str(file), "--max-tokens", "99") as server:
        answers = [server.ask(QUESTION).json() for _ in range(2)]
    asked = [call for call in lm.calls if call.wanted]
    assert len(asked) == 2  # the second reply is not a kept one
    assert {(call.request["temperature"], call.request["max_tokens"]) for call in asked} == {(0.5, 99)}
    assert any("[[ ## completed ## ]]" in str(call.request) for call in lm.calls)
    assert "33 words" in asked[0].request["messages"][0]["content"] + asked[0].request["messages"][-1]["content"]
    assert [len(answer["passages"]) for answer in answers] == [3, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [("quewe: 5", "there is no option --quewe"), ("queue: many", "Invalid value for '--queue'"), ("[", "YAML")],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, text, said):
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    done = invoke("serve", "--config", str(file))
    assert done.exit_code == 2 and said in done.stderr


@pytest.mark.parametrize("command", [["serve", "--program", "rag"], ["index", "serve"]])
def test_a_sample_that_is_served_for_want_of_an_index_is_said_first(tmp_path, command):
    with lm_server() as lm, pytest.MonkeyPatch.context() as patch:
        patch.delenv("TYPEDRAG_INDEX", raising=False)
        lm_options = ["--lm", "vllm:stub", "--api-base", lm.api_base] if "--program" in command else []
        server = Process([sys.executable, "-m", "typedrag", *command, "--port", "0", *lm_options], {})
        server.process.kill()
        assert server.wait()
    assert "no index is named, so a sample on everyday subjects is searched" in " ".join(server.said[:-1])
    assert "typedrag serves" in server.said[-1]


def test_it_listens_at_a_socket_which_a_killed_server_leaves_behind(tmp_path):
    path = tmp_path / "socket"
    transport = httpx.HTTPTransport(uds=str(path))
    with lm_server() as lm, httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
        for _ in range(2):
            with process(lm, tmp_path, "--program", "direct_lm", "--host", f"unix:{path}") as server:
                assert server.said[-1].endswith(f"at unix:{path}")
                assert client.post("/v1/answer", json={"question": "Why?"}).status_code == 200
                server.process.kill()
                server.process.wait()
        with process(lm, tmp_path, "--program", "direct_lm", "--host", f"unix:{path}"):
            other = subprocess.run(
                [*server.process.args],
                capture_output=True,
                text=True,
                timeout=100,  # type: ignore[misc]
            )
    assert other.returncode == 2 and "cannot be listened at: Address already in use" in other.stderr


def test_it_speaks_tls_and_takes_keys_from_the_environment(tmp_path):
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    subprocess.run([openssl, "req", *made], check=True, capture_output=True)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key), "--workers", "2")
    secret = "a-key-of-ann-0123456789"
    with (
        lm_server() as lm,
        process(lm, tmp_path, "--program", "direct_lm", *tls, TYPEDRAG_CLIENT_KEYS=f"ann={secret}") as server,
        httpx.Client(base_url=server.url, verify=False, timeout=60) as client,
    ):
        assert server.url.startswith("https://127.0.0.1:")
        assert server.said[0] == "Keys that are let in: 1."
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"X-API-Key": secret}).status_code == 200
        server.wait_for('"key": "ann"')


@pytest.mark.parametrize(
    ("options", "keys", "said"),
    [
        (("--tls-cert", "{file}"), "", "is no certificate with its key"),
        ((), "ann", "TYPEDRAG_CLIENT_KEYS holds no keys"),
        ((), "ann=short", "a key has 20 characters"),
        (("--host", "unix:{file}/socket"), "", "cannot be listened at: Not a directory"),
        (("--feedback", "{file}/feedback.sqlite"), "", "feedback.sqlite"),
        (("--feedback", "{file}"), "", "is not a database"),
    ],
)
def test_what_cannot_be_used_is_said_before_it_serves(tmp_path, monkeypatch, options, keys, said):
    file = tmp_path / "file"
    file.write_text("no PEM, and no SQLite either" * 100)
    if keys:
        monkeypatch.setenv("TYPEDRAG_CLIENT_KEYS", keys)
    with lm_server() as lm:
        lm_options = ["--program", "direct_lm", "--lm", "vllm:stub", "--api-base", lm.api_base, "--port", "0"]
        done = invoke("serve", *lm_options, *(option.format(file=file) for option in options))
    assert done.exit_code in (2, 1), done.output
    assert said in done.stderr and "typedrag serves" not in done.stderr and "Traceback" not in done.stderr
