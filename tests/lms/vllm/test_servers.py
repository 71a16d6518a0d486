"""Several servers as one LM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import dspy
import pytest

from tests.lm_server import LMServer, lm_server
from tests.lms.test_lm import closed_port, refusal
from tests.lms.vllm.test_started import until
from typedrag.errors import InputError, LMUnavailable
from typedrag.events import following
from typedrag.experiments.evaluate.config import LMConfig
from typedrag.lms.lm import default_spec, lm_identity, open_lm, use_lm
from typedrag.lms.vllm import servers
from typedrag.lms.vllm.servers import Replicas, served_models
from typedrag.redaction import redactor_for
from typedrag.serving.routes.status import _ask_lm


def ask(spec: str, count: int, threads: int = 8, **settings: object) -> list[str]:
    lm = open_lm(spec, cache=False, **settings)  # type: ignore[arg-type]
    with use_lm(lm), ThreadPoolExecutor(threads) as pool:
        predict = dspy.Predict("question -> answer")
        context = dspy.settings.copy()

        def one(number: int) -> str:
            with dspy.context(**context):
                return str(predict(question=f"Why {number}?").answer)

        return list(pool.map(one, range(count)))


def spec_of(*addresses: str) -> str:
    return f"vllm:stub@{','.join(addresses)}"


class Process:
    """A server that is a process of its own, to be killed."""

    def __init__(self, api_base: str, seconds: float = 0.0) -> None:
        fake = Path(__file__).with_name("fake_vllm.py")
        port = str(urlsplit(api_base).port)
        command = [sys.executable, str(fake), "serve", "stub", "--port", port, "--seconds", str(seconds)]
        self.process = subprocess.Popen(command, start_new_session=True)
        until(lambda: answers(api_base))

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def answers(api_base: str) -> bool:
    try:
        return bool(served_models(api_base, "EMPTY"))
    except LMUnavailable:
        return False


@pytest.fixture
def process():
    with ExitStack() as stack:

        def start(api_base: str, seconds: float = 0.0) -> Process:
            started = Process(api_base, seconds)
            stack.callback(lambda: started.process.poll() is None and started.kill())
            return started

        yield start


@pytest.fixture
def two():
    with lm_server() as one, lm_server() as other:
        yield one, other


def test_calls_are_shared_and_the_slower_server_gets_fewer(two: tuple[LMServer, LMServer]):
    fast, slow = two
    fast.seconds, slow.seconds = 0.05, 0.5
    ask(spec_of(slow.api_base, fast.api_base), 40, threads=4)
    assert len(fast.calls) + len(slow.calls) == 40
    assert slow.calls and len(fast.calls) > 2 * len(slow.calls)


def test_the_least_busy_one_is_next():
    replicas = Replicas(("http://a", "http://b"), "EMPTY")
    with replicas.least_busy() as first, replicas.least_busy() as second:
        assert (first, second) == ("http://a", "http://b")
        with replicas.least_busy() as third:
            assert third == "http://a"
    with replicas.least_busy() as again:
        assert again == "http://a"


def test_calls_in_flight_on_a_server_that_is_killed_go_to_the_other(process: Callable[..., Process]):
    base, other = closed_port(), closed_port()
    killed, kept = process(base, seconds=1.5), process(other)
    ending = threading.Timer(0.7, killed.kill)
    ending.start()
    replies = ask(spec_of(base, other), 8, threads=8, num_retries=0)
    assert all(reply.startswith(str(kept.process.pid)) for reply in replies) and len(replies) == 8


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_server_that_fails_is_left_out_and_taken_back(two, streamed, monkeypatch, caplog):
    monkeypatch.setattr(servers, "_ASK_AGAIN", 0.3)
    failing, working = two
    failing.reply = lambda call: (503, "the engine is dead")
    spec = spec_of(failing.api_base, working.api_base)
    with following(lambda event: None) if streamed else ExitStack():
        ask(spec, 4, threads=1, num_retries=0)
        assert (len(failing.calls), len(working.calls)) == (1, 4)
        assert f"the LM's server at {failing.api_base} fails" in caplog.text
        failing.reply = lambda call: None
        until(lambda: f"{failing.api_base} answers again" in caplog.text)
        ask(spec, 4, threads=1)
    assert len(failing.calls) == 5  # it is first, and as idle as the other


def test_if_all_fail_the_fault_is_told_and_tries_are_counted(two):
    for server in two:
        server.reply = lambda call: (503, "the engine is dead")
    lm = open_lm(spec_of(*(server.api_base for server in two)), cache=False, num_retries=0)
    with use_lm(lm), pytest.raises(dspy.LMError, match="the engine is dead"):
        dspy.Predict("question -> answer")(question="Why?")
    assert [len(server.calls) for server in two] == [1, 1]


def test_a_refused_request_is_no_fault_of_a_server(two):
    for server in two:
        server.reply = lambda call: (400, "the prompt is too long")
    with pytest.raises(dspy.LMError, match="the prompt is too long"):
        ask(spec_of(*(server.api_base for server in two)), 1)
    assert sum(len(server.calls) for server in two) == 1


def test_an_event_loop_goes_elsewhere_too(two):
    failing, working = two
    failing.reply = lambda call: (503, "the engine is dead")
    lm = open_lm(spec_of(failing.api_base, working.api_base), cache=False, num_retries=0)
    with use_lm(lm):
        asyncio.run(dspy.Predict("question -> answer").acall(question="Why?"))
    assert (len(failing.calls), len(working.calls)) == (1, 1)


# opening


def test_one_that_is_down_is_warned_of_and_all_are_an_error(server, caplog):
    down = closed_port()
    ask(spec_of(down, server.api_base), 2)
    assert f"no vLLM server answers at {down}" in caplog.text and len(server.calls) == 2
    assert f"no vLLM server answers at {down}" in refusal(LMUnavailable, spec_of(down, closed_port()))


def test_one_that_serves_another_model_is_an_error(server, process):
    base = closed_port()
    process(base)
    server_base = server.api_base
    assert "does not serve 'other'" in refusal(LMUnavailable, f"vllm:other@{base},{server_base}")


def test_addresses_may_come_from_the_spec_an_option_or_the_environment(two, monkeypatch):
    both = ",".join(server.api_base for server in two)
    monkeypatch.setenv("TYPEDRAG_API_BASE", both)
    bases = [open_lm(f"vllm:stub@{both}"), open_lm("vllm:stub", api_base=both), open_lm("vllm:stub")]
    assert {lm.kwargs["api_base"] for lm in bases} == {both}
    monkeypatch.setenv("TYPEDRAG_LM", f"vllm:stub@{both}")
    with pytest.raises(InputError, match="Put it into TYPEDRAG_API_BASE"):
        default_spec()


# identity


def test_runs_name_the_lm_alike_wherever_it_is_served(two):
    one, both = two[0].api_base, ",".join(server.api_base for server in two)
    alone, several = open_lm(f"vllm:stub@{one}"), open_lm(f"vllm:stub@{both}")
    assert lm_identity(alone) == lm_identity(several)
    config = LMConfig(spec=f"vllm:stub@{both}")
    assert (config.spec, config.api_base) == ("vllm:stub", both)
    assert LMConfig(spec="vllm:judge").beside(config).api_base == both


def test_all_addresses_are_hidden_in_what_a_run_leaves(two):
    lm = open_lm("vllm:stub", api_base=f"{two[0].api_base},{two[1].api_base}")
    redact = redactor_for([lm], {"TYPEDRAG_API_BASE": "http://a.example/v1,http://b.example:8000/v1"})
    text = f"{two[0].api_base} {two[1].api_base} http://a.example/v1 b.example:8000"
    assert "http" not in redact(text) and "example" not in redact(text)


def test_one_server_that_answers_makes_the_lm_ready(two):
    lm = open_lm("vllm:stub", api_base=f"{two[0].api_base},{two[1].api_base}")
    lm.kwargs["api_base"] = f"{closed_port()},{two[1].api_base}"
    asyncio.run(_ask_lm(lm))
    lm.kwargs["api_base"] = f"{closed_port()},{closed_port()}"
    with pytest.raises(Exception, match="connect"):
        asyncio.run(_ask_lm(lm))


def test_a_busy_server_is_left_alone_while_the_other_is_idle(two):
    hung, idle = two
    hung.seconds = 3.0
    began = time.monotonic()
    ask(spec_of(hung.api_base, idle.api_base), 9, threads=2)
    assert len(hung.calls) == 1 and len(idle.calls) == 8 and time.monotonic() - began < 6
