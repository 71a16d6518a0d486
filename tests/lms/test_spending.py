from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

from typedrag.errors import StepFailed
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.spending import Account, Spending, charging, metered
from typedrag.programs import DirectLM
from typedrag.records import Usage


def test_calls_are_charged_to_all_accounts_around_them(server):
    program = DirectLM()
    with use_lm(metered(open_lm("vllm:stub", api_base=server.api_base, cache=False))):
        program(question="Not counted?")
        with charging(Account()) as outer:
            program(question="Why?")
            with charging(Account()) as inner:
                program(question="How?")
    assert inner.spent == Spending(Usage(1, 100, 10), unpriced=1)
    assert outer.spent == inner.spent + inner.spent
    assert outer.spent.cost is None


def test_threads_that_carry_the_context_are_charged(server):
    program = DirectLM()
    lm = metered(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    with use_lm(lm), charging(Account()) as account, ThreadPoolExecutor(8) as pool:
        for n in range(40):
            pool.submit(contextvars.copy_context().run, program, question=f"Why {n}?")
    assert account.spent.usage == Usage(40, 4000, 400)
    assert lm.history == []


def test_a_copy_of_a_metered_lm_is_metered(server):
    """Teleprompters copy LMs."""
    lm = metered(open_lm("vllm:stub", api_base=server.api_base, cache=False)).copy(temperature=0.5)
    with use_lm(lm), charging(Account()) as account:
        DirectLM()(question="Why?")
    assert account.spent.usage.lm_calls == 1


def test_what_a_reply_that_cannot_be_read_took_is_charged(server):
    server.reply = lambda call: {"nothing": 1}
    lm = metered(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    with use_lm(lm), charging(Account()) as account, pytest.raises(StepFailed, match="could not be read"):
        DirectLM()(question="Why?")
    assert account.spent.usage.lm_calls == len(server.calls) == 3


def test_prices_are_counted_where_dspy_knows_them(server):
    lm = metered(dspy.LM("openai/gpt-4o-mini", api_base=server.api_base, api_key="sk-1234567890", cache=False))
    with use_lm(lm), charging(Account()) as account:
        DirectLM()(question="Why?")
    assert account.spent.unpriced == 0
    assert account.spent.cost == pytest.approx(100 * 0.15e-6 + 10 * 0.6e-6)


def test_what_a_cache_answers_costs_nothing(server, tmp_path):
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    try:
        with use_lm(metered(open_lm("vllm:stub", api_base=server.api_base, cache=True))):
            for calls in (1, 0):
                with charging(Account()) as account:
                    DirectLM()(question="Why?")
                assert account.spent.usage.lm_calls == calls
    finally:
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


def test_threads_of_dspy_are_charged(server):
    """They carry DSPy's settings alone."""
    lm = metered(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    devset = [dspy.Example(question=f"Why {n}?").with_inputs("question") for n in range(6)]
    evaluate = dspy.Evaluate(devset=devset, metric=lambda example, prediction: 1.0, num_threads=3)
    with use_lm(lm), charging(Account()) as account:
        evaluate(DirectLM())
    assert account.spent.usage.lm_calls == len(server.calls) == 6


def test_several_replies_at_once_are_as_many_calls(server):
    lm = metered(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    with use_lm(lm), charging(Account()) as account:
        dspy.Predict("question -> answer", n=3, temperature=1.0)(question="Why?")
    assert account.spent.usage.lm_calls == len(server.calls) == 3
    assert account.spent.unpriced == 3
