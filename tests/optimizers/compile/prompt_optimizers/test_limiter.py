import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import dspy
import pytest
from dspy.utils.exceptions import LMAuthError, LMBillingError

from tests.optimizers.tiny import Engine, tiny_lm
from typedrag.core.errors import LMUnavailable, RetrievalError
from typedrag.core.records import Usage
from typedrag.lms.client import _CallsInFlight
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.lm import PerLMAdapter, with_cache
from typedrag.lms.replies import use_reply_store
from typedrag.optimizers.compile.prompt_optimizers.limiter import CallLimiter, Faulted, Ledger, LimitReached, Stopped
from typedrag.runs import AnyOf, Limits


class Asked:
    """An LM within a limiter, as a compile has it."""

    def __init__(self, folder, engine, stop, keep=True):
        self.engine, self.account = engine, CostTracker()
        self.limiter = CallLimiter(stop, self.account)
        self._lm = with_cache(tiny_lm(engine)) if keep else with_cache(tiny_lm(engine)).copy(cache=False)
        self._file = folder / "replies.sqlite"

    def __enter__(self):
        self._contexts = ExitStack()
        self._contexts.enter_context(use_reply_store(self._file))
        self._contexts.enter_context(track_cost(self.account))
        callbacks = [self.limiter, *dspy.settings.callbacks]
        self._contexts.enter_context(dspy.context(lm=self._lm, adapter=PerLMAdapter(), callbacks=callbacks, trace=None))
        return self

    def __exit__(self, *error):
        self._contexts.close()

    def ask(self, question="Why?"):
        return dspy.Predict("question -> answer")(question=question).answer

    def ask_at_once(self, questions):
        def one(question):
            try:
                return self.ask(question)
            except Stopped as reason:
                return reason

        with ThreadPoolExecutor(len(questions)) as pool:
            begun = [pool.submit(contextvars.copy_context().run, one, q) for q in questions]
            return [b.result() for b in begun]


@pytest.mark.parametrize("keep", [True, False])
def test_no_call_is_made_beyond_the_budget(keep, tmp_path):
    """Of threads that ask at once, and of LMs whose replies are not cached, such as a judge's."""
    with Asked(tmp_path, Engine(seconds=0.02), Limits(lm_calls=5), keep) as asked:
        said = asked.ask_at_once([f"Why {n}?" for n in range(12)])
        assert sum(isinstance(s, LimitReached) for s in said) == 7
        assert len(asked.engine.requests) == asked.account.spent.usage.lm_calls == 5
        with pytest.raises(LimitReached, match="5 allowed"):
            asked.ask("Another?")
    assert asked.account.spent.usage.lm_calls == 5


@pytest.mark.parametrize("charged", [True, False])
def test_a_call_that_ends_leaves_the_next_its_place(charged):
    account = CostTracker()
    limiter = CallLimiter(Limits(lm_calls=2 if charged else 1), account)
    lm = dspy.LM("tiny/lm", cache=False)
    limiter.on_lm_start("first", lm, {})
    if charged:  # before DSPy says that it has ended
        account.add(Spending(Usage(1, 10, 5)))
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(limiter.on_lm_start, "second", lm, {})
        with pytest.raises(TimeoutError):
            second.result(timeout=0.05)
        limiter.on_lm_end("first", None)
        second.result(timeout=60)
    assert limiter.stopped is None


def test_a_call_that_fails_gives_its_slot_back(tmp_path):
    """Others wait for it, more than there are slots: they are refused, and do not wait for ever."""
    engine = Engine(seconds=0.05, limit=0)
    engine.error = lambda: LMAuthError("refused")
    said = []

    def one(question):
        try:
            asked.ask(question)
        except Faulted as fault:
            said.append(fault)

    with Asked(tmp_path, engine, AnyOf()) as asked:
        dspy.settings.lm.callbacks = [_CallsInFlight(1)]
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=[one, q], daemon=True)
            for q in ("Why?", "How?", "When?", "Where?")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert len(said) == 4


def test_an_index_that_fails_closes_the_limiter(tmp_path):
    class Retrieving(dspy.Module):
        def forward(self):
            raise RetrievalError("the index is gone")

    with Asked(tmp_path, Engine(), AnyOf()) as asked:
        with pytest.raises(Faulted, match="index is gone"):
            Retrieving()()
        assert isinstance(asked.limiter.stopped, Faulted)


def test_ending_waits_for_what_is_under_way(tmp_path):
    with Asked(tmp_path, Engine(seconds=0.2), AnyOf()) as asked:
        thread = threading.Thread(target=contextvars.copy_context().run, args=[asked.ask])
        thread.start()
        while not asked.engine.requests:
            pass
        asked.limiter.end()
        assert asked.account.spent.usage.lm_calls == 1
        with pytest.raises(Stopped, match="has ended"):
            asked.ask("Why?")
        thread.join()


def test_a_ledger_outlives_a_kill(tmp_path):
    file = tmp_path / "spending.jsonl"
    ledger = Ledger(file)
    ledger.add(Spending(Usage(1, 10, 5), dollars=0.5))
    ledger.add(Spending(Usage(2, 20, 5), unpriced=2))
    file.write_bytes(file.read_bytes() + b'{"lm_calls": 1, "prompt_to')  # cut off
    again = Ledger(file)
    assert again.spent == Spending(Usage(3, 30, 10), dollars=0.5, unpriced=2)
    again.add(Spending(Usage(1, 1, 1)))
    assert Ledger(file).spent.usage.lm_calls == 4


@pytest.mark.parametrize("error", [LMAuthError("refused"), LMBillingError("quota")])
def test_an_lm_that_cannot_be_used_closes_the_limiter(error, tmp_path):
    engine = Engine(limit=1)
    engine.error = lambda: error
    with Asked(tmp_path, engine, AnyOf()) as asked:
        asked.ask("Why?")
        with pytest.raises(Faulted) as raised:
            asked.ask("How?")
        assert isinstance(raised.value.error, LMUnavailable)
        with pytest.raises(Faulted):
            asked.ask("Why?")  # though it is known
    assert len(engine.requests) == 2


def test_tokens_are_a_limit_too(tmp_path):
    with Asked(tmp_path, Engine(), Limits(tokens=40)) as asked:
        for n in range(3):
            asked.ask(f"Why {n}?")  # 15 tokens each
        with pytest.raises(LimitReached, match="45 tokens are spent of the 40 allowed"):
            asked.ask("Another?")
