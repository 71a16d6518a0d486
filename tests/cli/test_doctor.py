import json
import os
import sys

import pytest

from tests.commands import invoke
from tests.lms.test_lm import closed_port

NEEDED = {"Java", "Lucene", "index", "type classifier", "LM"}


@pytest.fixture(autouse=True)
def _an_lm_that_needs_no_loading(monkeypatch, sample_index):
    monkeypatch.setenv("TYPEDRAG_LM", "openai/gpt-4o-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "none is asked")
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))


def doctor():
    """The exit code, and the checks by name."""
    done = invoke("doctor", "--json")
    return done.exit_code, {check["name"]: check for check in map(json.loads, done.stdout.splitlines())}


def test_where_a_question_can_be_answered_it_says_so(sample_index):
    code, checks = doctor()
    assert code == 0
    assert {name for name, check in checks.items() if check["needed"]} == NEEDED
    assert all(checks[name]["works"] for name in NEEDED)
    assert checks["index"]["finding"].startswith(str(sample_index))
    assert checks["LM"]["finding"] == "openai/gpt-4o-mini can be opened"


def test_people_get_a_line_a_check():
    done = invoke("doctor")
    assert done.exit_code == 0
    width = max(len(name) for name in doctor()[1])
    marks = {line[9 : 9 + width].strip(): line.split()[0] for line in done.stdout.splitlines()}
    assert marks["Java"] == marks["LM"] == "ok"
    assert marks["vLLM server"] == "-"
    assert set(doctor()[1]) == set(marks)  # each by its whole name


@pytest.mark.parametrize(
    ("setting", "value", "name", "finding"),
    [
        ("TYPEDRAG_LM", "nonsense", "LM", "'nonsense' is no LM spec"),
        ("TYPEDRAG_LM", "embedded:none", "LM", "no embedded model 'none'"),
        ("TYPEDRAG_LM", "mistral/mistral-small", "LM", "wants MISTRAL_API_KEY in the environment. Set its key"),
        ("TYPEDRAG_INDEX", "/nowhere", "index", "/nowhere is no index"),
    ],
)
def test_what_a_first_answer_lacks_fails_it(monkeypatch, setting, value, name, finding):
    monkeypatch.setenv(setting, value)
    code, checks = doctor()
    assert code == 1
    assert [n for n in NEEDED if not checks[n]["works"]] == [name]
    assert finding in checks[name]["finding"]
    assert f"MISSING  {name} " in invoke("doctor").stdout


def test_what_is_not_needed_does_not_fail_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    code, checks = doctor()
    assert code == 0
    assert "typedrag models fetch smollm2-135m" in checks["model smollm2-135m"]["finding"]
    assert not checks["vLLM server"]["works"]


def test_keys_are_named_and_never_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    code, checks = doctor()
    assert code == 0
    assert "OPENAI_API_KEY" in checks["API keys"]["finding"]
    assert "sk-planted" not in json.dumps(checks)


def test_the_vllm_server_is_asked_with_its_key(monkeypatch, server):
    monkeypatch.setenv("TYPEDRAG_API_KEY", "sk-planted")
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    _, checks = doctor()
    assert checks["vLLM server"]["works"]
    assert checks["vLLM server"]["finding"] == f"{server.api_base} serves stub"
    assert server.keys == ["Bearer sk-planted"]
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base.removesuffix("/v1"))
    _, checks = doctor()
    assert not checks["vLLM server"]["works"]
    assert "\n" not in checks["vLLM server"]["finding"]


def test_a_vllm_server_that_does_not_answer_is_named(monkeypatch):
    base = closed_port()
    monkeypatch.setenv("TYPEDRAG_API_BASE", base)
    _, checks = doctor()
    assert not checks["vLLM server"]["works"]
    assert f"no vLLM server answers at {base}" in checks["vLLM server"]["finding"]


def test_the_command_that_starts_vllm_is_named(monkeypatch, tmp_path):
    command = tmp_path / "vllm"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _, checks = doctor()
    assert checks["vLLM server"]["works"]
    assert checks["vLLM server"]["finding"] == f"TYPEDRAG_API_BASE is not set; {command} starts one"
