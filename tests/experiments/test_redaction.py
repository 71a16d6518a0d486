from __future__ import annotations

import dspy
import pytest

from tests.lm_server import lm_server
from tests.scripted import ScriptedEngine
from typedrag.experiments.redaction import redactor_for
from typedrag.lm import open_lm


@pytest.fixture
def server():
    with lm_server() as served:
        yield served


def test_keys_and_addresses_are_hidden():
    engine_lm = dspy.LM("scripted/lm", engine=ScriptedEngine({}), cache=False)
    lm = dspy.LM(
        "openai/gpt-4o-mini",
        api_base="https://lm.example.org:8443/v1",
        api_key="sk-the-key-of-the-lm",
        extra_headers={"X-Auth": "header-secret"},
    )
    hide = redactor_for(
        [lm, engine_lm], {"ANTHROPIC_API_KEY": "sk-ant-123456", "HF_TOKEN": "hf_abcdefgh", "HOME": "/home/me"}
    )
    text = (
        "POST https://lm.example.org:8443/v1/chat with sk-the-key-of-the-lm, header-secret, sk-ant-123456, hf_abcdefgh "
        "at host lm.example.org, from /home/me"
    )
    assert hide(text) == (
        "POST [hidden]/chat with [hidden], [hidden], [hidden], [hidden] at host [hidden], from /home/me"
    )


def test_addresses_that_the_environment_gives_are_hidden_whoever_reads_them():
    hide = redactor_for(
        [dspy.LM("openai/m")],
        {
            "OPENAI_API_BASE": "https://gw.corp.example:8443/v1",
            "ANTHROPIC_BASE_URL": "https://other.example/",
            "MLFLOW_TRACKING_URI": "https://me:a-password@mlflow.example",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        },
    )
    said = hide("POST https://gw.corp.example:8443/v1/chat to gw.corp.example, other.example, a-password wJalrXUtnFEMI")
    assert said == "POST [hidden]/chat to [hidden], [hidden], [hidden] [hidden]"
    hide = redactor_for([], {"MLFLOW_TRACKING_URI": "sqlite:////home/me/mlflow.db"})
    assert hide("at sqlite:////home/me/mlflow.db") == "at sqlite:////home/me/mlflow.db"


def test_placeholders_hide_no_words(server):
    hide = redactor_for([open_lm("vllm:stub", api_base=server.api_base)], {"SOME_API_KEY": "EMPTY", "OTHER_TOKEN": ""})
    assert hide("EMPTY words at localhost and 127.0.0.1") == "EMPTY words at localhost and 127.0.0.1"
    assert server.api_base not in hide(f"at {server.api_base}/chat")


def test_the_name_of_a_host_that_may_be_a_word_is_hidden_in_addresses_alone():
    lm = dspy.LM("openai/m", api_base="http://inference:8000/v1", api_key="EMPTY")
    hide = redactor_for([lm], {"TYPEDRAG_API_BASE": "http://10.20.30.40:8000/v1"})
    assert hide("Answer by inference from inference:8000") == "Answer by inference from [hidden]"
    assert hide("no server answers at http://10.20.30.40:8000/v1 (10.20.30.40)") == (
        "no server answers at [hidden] ([hidden])"
    )
