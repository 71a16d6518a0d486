import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

from tests.lm_server import lm_server
from typedrag.core import proxies
from typedrag.core.errors import InputError, LMUnavailable, Unavailable
from typedrag.core.events import listen
from typedrag.core.records import Answer, Usage
from typedrag.experiments.tracking.tracker import connect_to_existing
from typedrag.lms import client, in_process
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.lm import open_lm, reply_settings, use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.programs import DirectLM
from typedrag.retrieval.search.remote import open_remote

REASONING = ("openai/gpt-5-mini", "openai/o3", "openai/o4-mini")


def ask(lm: dspy.LM) -> tuple[Answer, Spending]:
    with use_lm(lm), track_cost(CostTracker()) as account:
        answer = Answer.from_prediction(DirectLM()(question="Why?"))
    return answer, account.spent


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "none",
        {},
        {"prompt_tokens": None, "completion_tokens": "12", "total_tokens": 3.7, "prompt_tokens_details": None},
        {"prompt_tokens": -1, "completion_tokens": -1, "total_tokens": -2},
    ],
)
def test_a_call_is_counted_whatever_its_server_tells_of_tokens(server, usage):
    server.usage = usage
    answer, spent = ask(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    assert answer.usage == Usage(1, 0, 0, uncounted=1)
    assert answer.usage.tokens is None
    assert spent == Spending(Usage(1, 0, 0, uncounted=1), unpriced=1)


# tries and waits


def test_a_hanging_server_is_tried_twice_and_said(server):
    server.seconds = 0.6
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False, timeout=0.1)
    with pytest.raises(LMUnavailable, match=r"no reply within 0.1 s, in 2 tries.*--timeout") as refused:
        ask(lm)
    assert len(server.calls) == 2
    assert "stub" in str(refused.value)


def test_a_call_waits_its_turn_before_its_timeout_begins(server, tmp_path, monkeypatch):
    """The embedded LM decodes four at once; on a busy machine calls that waited in its queue were given up there."""
    server.seconds = 0.3
    endpoint = in_process.Endpoint(server.api_base, "EMPTY", threading.Semaphore(2))
    monkeypatch.setattr(in_process, "serve_gguf", lambda gguf: endpoint)
    (tmp_path / "stub.gguf").touch()
    settings = {"cache": False, "num_retries": 0}
    lms = [open_lm(f"embedded:{tmp_path}/stub.gguf", **settings) for _ in range(2)]  # one answers, one judges

    def ask(number):
        with use_lm(lms[number % 2]):
            return DirectLM()(question=f"Why {number}?").answer

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert len(answers) == len(server.calls) == 8
    assert server.most_at_once == 2


def test_a_wait_that_a_server_asks_for_is_capped_and_said(server, monkeypatch, caplog):
    monkeypatch.setattr(client, "LONGEST_WAIT", 0.05)
    server.retry_after = "3600"
    server.reply = lambda call: (429, "slow down") if len(server.calls) < 2 else None
    answer, _ = ask(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    assert answer.answer
    assert "its server asks to wait 3,600 s" in caplog.text


def test_all_calls_keep_the_pause_that_a_server_asks_one_of_them_for(server):
    began: list[float] = []

    def reply(call):
        began.append(time.monotonic())
        return (429, "slow down") if len(began) == 1 else None

    server.retry_after, server.reply = "1", reply
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False)
    first = threading.Thread(target=ask, args=[lm])
    first.start()
    while not server.calls:
        time.sleep(0.01)
    time.sleep(0.2)
    ask(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    first.join()
    assert len(began) == 3
    assert all(moment - began[0] >= 1 for moment in began[1:])


def test_calls_that_wait_together_do_not_come_back_together():
    client.RETRY_AFTER.set("busy at None", 20.0, notify=False)
    caller = client.Caller(dspy.LM("busy"), 3, takes_sampling=True)
    error = dspy.LMRateLimitError("busy", retry_after=20.0)
    waits = [client._Retries(caller).wait for _ in range(20)]
    for _ in range(20):
        retries = client._Retries(caller)
        assert retries.again(error)
        waits.append(retries.wait)
    assert all(19 < wait <= 25 for wait in waits)  # none sooner than asked
    assert max(waits) - min(waits) > 1


def test_a_fault_of_the_server_is_met_by_as_many_tries_as_wanted(server):
    server.retry_after = "0.01"
    server.reply = lambda call: (500, "CUDA out of memory")
    with pytest.raises(LMUnavailable, match="CUDA out of memory"):
        ask(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    assert len(server.calls) == 1 + client.RETRIES


# LMs that take no temperature


@pytest.mark.parametrize("spec", REASONING)
def test_an_lm_that_takes_no_temperature_is_asked_without_whoever_sets_one(server, spec):
    lm = open_lm(spec, api_base=server.api_base, api_key="sk-1234567890", cache=False)
    server.reply = lambda call: {"answer": ""} if len(server.calls) < 2 else {"answer": "So."}
    assert ask(lm)[0].answer == "So."  # asked again, at a temperature
    with use_lm(lm.copy(temperature=0.8, top_p=0.95, top_k=20, max_tokens=512)):
        DirectLM()(question="How?")
    assert len(server.calls) == 3
    for call in server.calls:
        assert call.request["max_completion_tokens"] == 16_000
        assert not {"temperature", "top_p", "top_k", "max_tokens"} & call.request.keys()


@pytest.mark.parametrize("spec", REASONING)
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"temperature": 0.0}, "takes no temperature, and 0 is given"),
        ({"temperature": 0.3}, "takes no temperature, and 0.3 is given"),
        ({"max_tokens": 100}, "16,000 tokens at least; 100 are given"),
    ],
)
def test_a_setting_that_an_lm_does_not_take_is_refused(spec, settings, problem):
    with pytest.raises(InputError, match=problem):
        open_lm(spec, **settings)


@pytest.mark.parametrize("spec", ["vllm:stub", "openai/gpt-4o-mini"])
def test_top_k_is_sent_to_servers_that_know_it_and_gives_another_reply(server, spec, tmp_path):
    settings = {"api_base": server.api_base, "temperature": 0.7, "top_p": 0.85, "api_key": "sk-1234567890"}
    if spec.startswith("vllm:"):
        del settings["api_key"]
    with use_reply_store(tmp_path / "replies.sqlite"):
        for top_k in (20, 40, 20, None):
            ask(open_lm(spec, cache=True, **settings, **({"top_k": top_k} if top_k else {})))
    assert [call.request.get("top_k") for call in server.calls] == [20, 40, None]
    assert reply_settings(open_lm(spec, top_k=20, **settings))["top_k"] == 20


def test_top_k_is_refused_for_an_lm_that_knows_none():
    with pytest.raises(InputError, match="'openai/gpt-4o-mini' takes no top_k"):
        open_lm("openai/gpt-4o-mini", top_k=20)
    assert open_lm("anthropic/claude-3-5-sonnet-20240620", top_k=20, api_key="sk-1").kwargs["top_k"] == 20


# the way to a server


@pytest.mark.parametrize("exceptions", [{}, {"NO_PROXY": "example.org"}, {"no_proxy": "example.org"}])
def test_no_proxy_stands_before_a_server_of_this_machine(server, monkeypatch, exceptions):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in {**exceptions, "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    with listen(lambda event: None):
        assert ask(open_lm("vllm:stub", api_base=server.api_base, cache=False, num_retries=0))[0].answer
    assert ask(open_lm("vllm:stub", api_base=server.api_base, cache=False, num_retries=0))[0].answer
    assert len(server.calls) == 2
    assert all("example.org" in os.environ[name] for name in exceptions)


def test_a_socks_proxy_without_its_package_is_named(server, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@proxy.example:1080")
    monkeypatch.setattr(proxies, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"SOCKS proxy proxy.example:1080 needs the package 'socksio'") as refused:
        open_lm("vllm:stub", api_base="http://lm.example/v1")
    assert "secret" not in str(refused.value)
    with pytest.raises(Unavailable, match="'socksio'"):
        open_lm("openai/gpt-4o-mini")
    with pytest.raises(Unavailable, match="'socksio'"):
        open_remote("http://index.example", {})
    with pytest.raises(Unavailable, match="'PySocks'"):
        connect_to_existing("http://mlflow.example", "a run")
    assert ask(open_lm("vllm:stub", api_base=server.api_base, cache=False))[0].answer  # on this machine there is none


def test_a_star_in_no_proxy_stays_alone(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert proxies.find_proxy("http://lm.example/v1") == ""
    assert os.environ["no_proxy"] == "*"


@pytest.mark.parametrize("spec", ["embedded", "vllm-offline:org/model"])
def test_an_address_of_an_lm_in_this_process_is_refused(spec):
    with pytest.raises(InputError, match="runs in this process, and not at http://a/v1"):
        open_lm(spec, api_base="http://a/v1")


def test_a_wait_between_two_tries_holds_no_slot_of_another_server(server, monkeypatch):
    monkeypatch.setattr(client.IN_FLIGHT, "slots", threading.Semaphore(1))
    server.reply = lambda call: (429, "wait") if len(server.calls) == 1 else None
    server.retry_after = "3"
    with lm_server() as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, open_lm("vllm:stub", api_base=server.api_base, cache=False))
        while not server.calls:
            time.sleep(0.01)
        time.sleep(0.2)
        assert ask(open_lm("vllm:stub", api_base=other.api_base, cache=False))[0].answer
        assert not waiting.done()
        assert waiting.result(20)[0].answer


def test_prices_and_tokens_are_charged_where_the_call_is_made(server):
    lm = open_lm("openai/gpt-4o-mini", api_base=server.api_base, api_key="sk-1234567890", cache=False)
    answer, spent = ask(lm)
    assert answer.usage == spent.usage == Usage(1, 100, 10)
    assert spent.cost == pytest.approx(100 * 0.15e-6 + 10 * 0.6e-6)


def test_an_lm_may_have_no_timeout(server):
    server.reply = lambda call: (503, "busy") if len(server.calls) == 1 else None
    server.retry_after = "0"
    assert ask(open_lm("vllm:stub", api_base=server.api_base, cache=False, timeout=None))[0].answer
    assert len(server.calls) == 2


@pytest.mark.parametrize("spec", ["vllm:stub", "openai/gpt-4o-mini"])
def test_no_text_reaches_a_server_as_a_token_of_its_chat_template(server, spec):
    lm = open_lm(spec, api_base=server.api_base, api_key="k", cache=False)
    lm(messages=[{"role": "system", "content": "Be [INST] kind"}, {"role": "user", "content": "a<|im_end|> </s>"}])
    sent = [message["content"] for message in server.calls[-1].request["messages"]]
    assert sent == ["Be [ INST] kind", "a< |im_end|> < /s>"]
