import itertools
import re

import dspy
import pytest

from typedrag.core.errors import InputError, StepFailed
from typedrag.core.records import Usage
from typedrag.lms.cost import PRICES, CostTracker, Price, Spending, find_price, track_calls, track_cost
from typedrag.lms.lm import open_lm, use_lm
from typedrag.programs import DirectLM


def test_calls_are_charged_to_all_accounts_around_them(server):
    program = DirectLM()
    with use_lm(track_calls(open_lm("vllm:stub", api_base=server.api_base, cache=False))):
        program(question="Not counted?")
        with track_cost(CostTracker()) as outer:
            program(question="Why?")
            with track_cost(CostTracker()) as inner:
                program(question="How?")
    assert inner.spent == Spending(Usage(1, 100, 10), unpriced=1)
    assert outer.spent == inner.spent + inner.spent
    assert outer.spent.cost is None


def test_what_a_reply_that_cannot_be_read_took_is_charged(server):
    server.reply = lambda call: {"nothing": 1}
    lm = track_calls(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    with use_lm(lm), track_cost(CostTracker()) as account, pytest.raises(StepFailed, match="could not be read"):
        DirectLM()(question="Why?")
    assert account.spent.usage.lm_calls == len(server.calls) == 3


def test_prices_are_counted_where_dspy_knows_them(server):
    lm = track_calls(dspy.LM("openai/gpt-4o-mini", api_base=server.api_base, api_key="sk-1234567890", cache=False))
    with use_lm(lm), track_cost(CostTracker()) as account:
        DirectLM()(question="Why?")
    assert account.spent.unpriced == 0
    assert account.spent.cost == pytest.approx(100 * 0.15e-6 + 10 * 0.6e-6)


def spend(lm) -> Spending:
    with use_lm(track_calls(lm)), track_cost(CostTracker()) as account:
        DirectLM()(question="Why?")
    return account.spent


@pytest.fixture
def prices(tmp_path, monkeypatch):
    def write(text: str) -> None:
        (tmp_path / "prices.yaml").write_text(text)
        monkeypatch.setenv(PRICES, str(tmp_path / "prices.yaml"))

    return write


def test_the_users_price_is_that_of_a_server_of_ones_own(server, prices):
    prices("vllm:stub: {prompt: 0.5, completion: 1.5}")
    spent = spend(open_lm("vllm:stub", api_base=server.api_base, cache=False))
    assert (spent.cost, spent.unpriced) == (pytest.approx((100 * 0.5 + 10 * 1.5) / 1e6), 0)


def test_the_users_price_is_that_of_an_embedded_lm(small_lm, prices):
    lm = open_lm("embedded:smollm2-135m", max_tokens=1, cache=False)
    prices("embedded:smollm2-135m: {prompt: 1, completion: 1}")
    assert find_price(lm.model) == Price(prompt=1, completion=1)


@pytest.mark.qwen
def test_the_users_price_of_the_default_lm_has_two_names(prices):
    names = ("embedded", "embedded:qwen2.5-coder-1.5b")
    for name, spec in itertools.product(names, names):
        prices(f"{name}: {{prompt: 1, completion: 1}}")
        assert find_price(open_lm(spec).model) == Price(prompt=1, completion=1), (name, spec)


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "gpt-4o-mini"])
@pytest.mark.parametrize("extra", [{}, {"extra_body": {"x": 1}}])
def test_the_users_price_counts_before_that_of_litellm(server, prices, name, extra):
    prices(f"{name}: {{prompt: 1000, completion: 0}}")
    lm = open_lm("openai/gpt-4o-mini", api_base=server.api_base, api_key="sk-1234567890", cache=False, **extra)
    assert spend(lm).cost == pytest.approx(0.1)


def test_a_call_whose_tokens_are_not_told_has_no_price(server, prices):
    server.usage = None
    prices("stub: {prompt: 0.5, completion: 1.5}")
    assert spend(open_lm("vllm:stub", api_base=server.api_base, cache=False)).cost is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stub: {prompt: 0.5}", "stub.completion is no price: Field required"),
        ("stub: {prompt: -1, completion: 1}", "stub.prompt is no price"),
        ("stub: {prompt: .nan, completion: 1}", "stub.prompt is no price"),
        ("- stub", "the whole is no price"),
        ("stub: {", "cannot be read (while parsing a flow node"),
    ],
)
def test_a_table_of_prices_that_cannot_be_used_is_refused_before_a_call(server, prices, text, said):
    prices(text)
    with pytest.raises(InputError, match=re.escape(said)):
        open_lm("vllm:stub", api_base=server.api_base)
    assert not server.calls


def test_what_a_cache_answers_costs_nothing(server, tmp_path):
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    try:
        with use_lm(track_calls(open_lm("vllm:stub", api_base=server.api_base, cache=True))):
            for calls in (1, 0):
                with track_cost(CostTracker()) as account:
                    DirectLM()(question="Why?")
                assert account.spent.usage.lm_calls == calls
    finally:
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
