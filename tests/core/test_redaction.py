import dspy
import pytest

from tests.lm_server import lm_server
from tests.scripted import ScriptedEngine
from typedrag.core.errors import StepFailed, Unavailable, first_line
from typedrag.core.redaction import make_redactor, without_keys
from typedrag.lms.asking import ask
from typedrag.lms.lm import open_lm, use_lm


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
    hide = make_redactor(
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
    hide = make_redactor(
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
    hide = make_redactor([], {"MLFLOW_TRACKING_URI": "sqlite:////home/me/mlflow.db"})
    assert hide("at sqlite:////home/me/mlflow.db") == "at sqlite:////home/me/mlflow.db"


def test_placeholders_hide_no_words(server):
    hide = make_redactor([open_lm("vllm:stub", api_base=server.api_base)], {"SOME_API_KEY": "EMPTY", "OTHER_TOKEN": ""})
    assert hide("EMPTY words at localhost and 127.0.0.1") == "EMPTY words at localhost and 127.0.0.1"
    assert server.api_base not in hide(f"at {server.api_base}/chat")


def test_the_name_of_a_host_that_may_be_a_word_is_hidden_in_addresses_alone():
    lm = dspy.LM("openai/m", api_base="http://inference:8000/v1", api_key="EMPTY")
    hide = make_redactor([lm], {"TYPEDRAG_API_BASE": "http://10.20.30.40:8000/v1"})
    assert hide("Answer by inference from inference:8000") == "Answer by inference from [hidden]"
    assert hide("no server answers at http://10.20.30.40:8000/v1 (10.20.30.40)") == (
        "no server answers at [hidden] ([hidden])"
    )


KEY = "sk/a+planted-key=01"


@pytest.mark.parametrize(
    "echoed",
    [
        f"bad request with Bearer {KEY}",
        "bad request with key=sk%2Fa%2Bplanted-key%3D01",
        "bad request with key=sk%2fa%2bplanted-key%3d01",
        f"{{'Authorization': 'Bearer {KEY}'}}",
    ],
)
def test_a_key_that_a_server_echoes_is_said_nowhere(server, echoed):
    server.reply = lambda call: (400, echoed)
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False)
    lm.kwargs["api_key"] = KEY
    with use_lm(lm), pytest.raises(StepFailed) as raised:
        ask("answer", dspy.Predict("question -> answer"), retries=0, question="Why?")
    assert "[hidden]" in str(raised.value)
    assert "planted" not in str(raised.value)


def test_a_reply_with_the_key_goes_without_it(server):
    server.reply = lambda call: {"answer": f"Your key is {KEY}."}
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False)
    lm.kwargs["api_key"] = KEY
    with use_lm(lm):
        reply = ask("answer", dspy.Predict("question -> answer"), retries=0, question="Why?")
    assert reply.prediction.answer == "Your key is [hidden]."


@pytest.mark.parametrize(
    ("said", "hidden"),
    [
        ("postgresql://me:pass%40w@db.example/study", "postgresql://[hidden]@db.example/study"),
        ("https://lm.example/v1?api-key=abc&n=1#x", "https://lm.example/v1?api-key=[hidden]&n=1#x"),
        ("https://glpat-0123456789abcdef@mlflow.example", "https://[hidden]@mlflow.example"),
        ("Write postgresql://USER@HOST/NAME", "Write postgresql://USER@HOST/NAME"),
        ("no key=word in prose, 10:30 at http://host:8000/v1", "no key=word in prose, 10:30 at http://host:8000/v1"),
    ],
)
def test_what_an_address_holds_is_hidden_in_all_that_is_said(said, hidden):
    assert without_keys(said) == first_line(ValueError(said)) == str(Unavailable(said)) == hidden


def test_the_password_of_an_address_is_hidden_alone_and_as_its_header():
    lm = dspy.LM("openai/m", api_base="https://me:my-password@lm.example/v1?token=query-secret", api_key="EMPTY")
    said = without_keys("my-password, Basic bWU6bXktcGFzc3dvcmQ=, query-secret, me", lm)
    assert said == "[hidden], Basic [hidden], [hidden], me"
