"""Servers refuse in many forms: their words are shown, and what has a way round is asked again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lm_server import lm_server
from typedrag import DirectLM, open_lm, use_lm
from typedrag.core.errors import CallFailed, LMUnavailable
from typedrag.experiments.config import DatasetConfig, EvaluationConfig, LMConfig, ProgramConfig
from typedrag.experiments.resources import Resources
from typedrag.lms.lm import check_lm
from typedrag.lms.refusals import server_words
from typedrag.serving.programs import ProgramSpec


def ask(server, question="Why?", **settings):
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False, num_retries=0, **settings)):
        return DirectLM()(question=question).answer


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no such model"}}, "no such model"),
        ({"error": "no such model"}, "no such model"),
        ({"object": "error", "message": "no such model", "code": 400}, "no such model"),
        ({"detail": "no such model"}, "no such model"),
        (
            {"detail": [{"loc": ["body", "seed"], "msg": "no number"}, {"msg": "too long"}]},
            "body.seed: no number; too long",
        ),
        ({"errors": [{"message": "no such model"}]}, "no such model"),
        ({"data": None}, ""),
    ],
)
def test_a_server_s_words_are_shown_whatever_their_form(server, body, words):
    assert server_words(body) == words
    server.reply = lambda call: (422, body)
    with pytest.raises(CallFailed, match=words or "HTTP 422, and no word of why"):
        ask(server)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "reply",
    [
        '{"choices": [{"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""},'
        ' "error": {"code": 502, "message": "the provider is down"}}]}',
        '{"error": "the provider is down"}',
        '{"detail": "the provider is down"}',
    ],
)
def test_an_error_within_a_reply_is_no_answer(server, reply):
    server.reply = lambda call: reply
    with pytest.raises(CallFailed, match="the provider is down"):
        ask(server)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "System role not supported"),
        (500, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    ],
)
def test_a_model_without_a_system_role_reads_the_prompt_in_the_user_s_message(server, status, words):
    def reply(call):
        return (status, words) if call.request["messages"][0]["role"] == "system" else None

    server.reply = reply
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        assert DirectLM()(question="Why?").answer
        assert DirectLM()(question="How?").answer
    system = server.calls[0].request["messages"][0]["content"]
    roles = [[message["role"] for message in call.request["messages"]] for call in server.calls]
    assert roles == [["system", "user"], ["user"], ["user"]]  # it is learnt
    assert server.calls[1].request["messages"][0]["content"].startswith(system)


def test_calls_that_learn_it_at_once_are_all_answered(server):
    server.seconds = 0.3
    server.reply = lambda call: (400, "System role not supported") if len(server.calls) <= 4 else None
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False, num_retries=0)

    def ask_one(number):
        with use_lm(lm):
            return DirectLM()(question=f"Why {number}?").answer

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask_one, range(4)))


def test_a_reply_that_its_server_finds_invalid_is_asked_for_again(server):
    invalid = {"message": "Failed to generate JSON", "code": "json_validate_failed", "failed_generation": "{"}
    server.reply = lambda call: (400, {"error": invalid}) if len(server.calls) == 1 else {"answer": "Yeast."}
    assert ask(server) == "Yeast."
    assert [call.request["temperature"] for call in server.calls] == [0.0, 0.7]


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 2048 tokens. However, you requested 5000 tokens",
        "the request exceeds the available context size (2048 tokens), try increasing it",
        "Input length (5000 tokens) exceeds the maximum allowed length",
    ],
)
def test_a_prompt_beyond_the_context_says_what_to_change(server, words):
    server.reply = lambda call: (400, words)
    with pytest.raises(CallFailed, match="-o passage_words=100"):
        ask(server)


def test_a_missing_key_is_said_plainly(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with use_lm(open_lm("openai/gpt-4o-mini", cache=False)), pytest.raises(LMUnavailable) as refused:
        DirectLM()(question="Why?")
    assert str(refused.value).startswith("OPENAI_API_KEY is not set. Set it")
    with pytest.raises(LMUnavailable) as before:
        check_lm("openai/gpt-4o-mini")
    assert str(before.value) == str(refused.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    for spec in ("openai/gpt-4o-mini", "embedded", "vllm:m", "mistral/small"):
        check_lm(spec)


def test_a_provider_that_nobody_knows_is_refused_before_it_is_asked(capsys):
    with pytest.raises(LMUnavailable, match="there is no LM 'unheard-of/model': no provider has this name"):
        check_lm("unheard-of/model")
    assert capsys.readouterr().out == ""


def test_a_missing_key_is_said_before_an_index_is_opened(monkeypatch, tmp_path):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    program, nowhere = ProgramConfig(program="rag"), tmp_path / "nowhere"
    parts = {"programs": (program,), "dataset": DatasetConfig(name="sample"), "metrics": (), "index": nowhere}
    config = EvaluationConfig(lm=LMConfig(spec="openai/gpt-4o-mini"), **parts)
    with pytest.raises(LMUnavailable, match="OPENAI_API_KEY is not set"):
        Resources(config, tmp_path).retriever(program)
    scorer = LMConfig(spec="anthropic/claude-opus-4-5")
    config = EvaluationConfig(lm=LMConfig(spec="embedded"), scorer=scorer, **parts)
    with pytest.raises(LMUnavailable, match="ANTHROPIC_API_KEY is not set"):
        Resources(config, tmp_path).retriever(program)
    with pytest.raises(LMUnavailable, match="OPENAI_API_KEY is not set"):
        ProgramSpec("rag", lm="openai/gpt-4o-mini", index=nowhere).open()


def test_a_list_of_models_that_is_null_is_an_empty_one():
    with lm_server(no_models=True) as server, pytest.raises(LMUnavailable, match=r"does not serve 'other'.*nothing"):
        open_lm("vllm:other", api_base=server.api_base)
