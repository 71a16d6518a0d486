import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from tests.lm_server import lm_server
from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError, StorageFull
from typedrag.files.database import SQLite
from typedrag.lms import replies
from typedrag.lms.cost import CostTracker, track_calls, track_cost
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import HELD, TABLES, Leases, ReplyStore, replies_file, use_reply_store
from typedrag.lms.trace import Stopwatch, count_replays
from typedrag.programs import DirectLM

BEAT = 0.2
PREDICT = dspy.Predict("question -> answer")


@pytest.fixture
def place(tmp_path):
    return tmp_path / "replies.sqlite"


@pytest.fixture
def lm(server):
    return track_calls(open_lm("vllm:stub", api_base=server.api_base, num_retries=0, cache=True))


def ask(lm, question="Why?"):
    with use_lm(lm):
        return PREDICT(question=question).answer


def test_what_was_asked_is_not_asked_again_and_costs_nothing(place, lm, server):
    server.seconds = 0.1
    with use_reply_store(place), track_cost(CostTracker()) as paid:
        first = ask(lm)
    with use_reply_store(place), track_cost(CostTracker()) as again, count_replays(), dspy.track_usage() as used:
        watch = Stopwatch()
        assert ask(lm) == first
        assert watch.seconds >= 0.1
    assert len(server.calls) == 1
    assert (paid.spent.tokens, again.spent.tokens) == (110, 0)
    assert used.get_total_tokens()[lm.model]["total_tokens"] == 110


def count(place):
    with sqlite3.connect(place) as file:
        return file.execute("SELECT COUNT(*) FROM typedrag_replies").fetchone()[0]


def test_other_settings_are_other_calls(place, lm, server):
    with use_reply_store(place):
        ask(lm)
        ask(lm, "How?")
        ask(lm.copy(temperature=0.5))
        ask(lm.copy(temperature=0.5, rollout_id=1))
        ask(lm.copy(timeout=9.0))  # which no reply depends on
    assert count(place) == len(server.calls) == 4


def test_what_is_asked_by_many_at_once_is_asked_once(place, lm, server):
    server.seconds = 0.2
    with use_reply_store(place):
        ask_at_once(lm, 6)
    assert len(server.calls) == 1


def ask_at_once(lm, threads):
    context = dspy.settings.copy()

    def work(_):
        with dspy.context(**context):
            return ask(lm)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


def test_a_call_that_fails_is_left_to_who_asks_next(place, lm, server):
    server.reply = lambda call: (400, "no") if len(server.calls) == 1 else None
    with use_reply_store(place):
        with pytest.raises(dspy.utils.exceptions.LMError):
            ask(lm)
        assert ask(lm)
    assert len(server.calls) == 2


def test_an_asynchronous_call_that_fails_is_left_to_who_asks_next(place, lm, server):
    server.reply = lambda call: (400, "no") if len(server.calls) == 1 else None

    async def ask_many(count):
        return await asyncio.gather(*(PREDICT.acall(question="Why?") for _ in range(count)))

    with use_reply_store(place), use_lm(lm):
        with pytest.raises(dspy.utils.exceptions.LMError):
            asyncio.run(asyncio.wait_for(ask_many(1), 20))
        answers = asyncio.run(asyncio.wait_for(ask_many(40), 20))  # more than the threads of an event loop
    assert {answer.answer for answer in answers} == {answers[0].answer}


# which LM a reply is of


def answers_of(place, *specs):
    """The answers of LMs to the same question, asked one after the other with one store."""
    with use_reply_store(place):
        return [ask(open_lm(spec, cache=True)) for spec in specs]


def test_a_reply_is_of_the_server_that_was_configured(place, server):
    server.reply = lambda call: {"answer": "A"}
    with lm_server(reply=lambda call: {"answer": "B"}) as other:
        one, two = f"vllm:stub@{server.api_base}", f"vllm:stub@{other.api_base}"
        assert answers_of(place, one, two, one, two) == ["A", "B", "A", "B"]
        assert (len(server.calls), len(other.calls)) == (1, 1)


def test_a_reply_is_of_the_adapter_that_was_configured(place, server):
    specs = [f"vllm:base+stub={folder}@{server.api_base}" for folder in ("org/one", "org/two", "org/one")]
    answers_of(place, *specs)
    assert len(server.calls) == 2


# leases


class LostOnce:
    """A database whose connection is lost once, before or after it has run a statement that begins so."""

    def __init__(self, file, statement, *, ran=False):
        self.file, self.statement, self.ran, self.lost = file, statement, ran, threading.Event()

    def run(self, statement, **values):
        if self.lost.is_set() or not statement.startswith(self.statement):
            return self.file.run(statement, **values)
        if self.ran:
            self.file.run(statement, **values)
        self.lost.set()
        raise StorageFull("the connection is lost", "")

    def close(self):
        pass


@pytest.fixture
def file(tmp_path):
    return SQLite(tmp_path / "replies.sqlite", HELD, *TABLES)


def test_a_lease_is_one_worker_s_until_it_is_released(file):
    one, two = Leases(file, BEAT), Leases(file, BEAT)
    assert one.take("call")
    time.sleep(4 * BEAT)  # longer than a lease that is not renewed
    assert not two.take("call")
    one.release("call")
    assert two.take("call")
    two.close()  # an interrupted worker leaves its calls to others at once
    assert one.take("call")


def test_the_lease_of_a_worker_that_is_no_more_lapses(file):
    dead, living = Leases(file, BEAT), Leases(file, BEAT)
    assert dead.take("call")
    dead._closed.set()
    dead._beating.join()
    assert not living.take("call")
    time.sleep(4 * BEAT)
    assert living.take("call")


def test_workers_wait_for_each_other_s_replies(file, place, lm, server):
    lease = Leases(file, BEAT, "another")
    with use_reply_store(file, BEAT), ThreadPoolExecutor(1) as pool:
        context = dspy.settings.copy()

        def work():
            with dspy.context(**context):
                return ask(lm)

        [key] = keys_asked(lm)
        assert lease.take(key)
        answer = pool.submit(work)
        time.sleep(2 * BEAT)
        assert not server.calls
        lease.release(key)
        assert answer.result(20)
    assert len(server.calls) == 1


def keys_asked(lm):
    """The keys of the calls that `ask` makes."""
    keys, store = [], dspy.cache
    found = store._find
    store._find = lambda key: keys.append(key) or ({"_": 0}, 0.0)
    try:
        with suppress(Exception):
            ask(lm)
    finally:
        store._find = found
    return keys[:1]


def test_a_heartbeat_goes_on_after_a_fault_of_the_database(file):
    broken = LostOnce(file, "UPDATE")
    assert Leases(broken, BEAT).take("call")
    [(before,)] = file.run("SELECT until FROM typedrag_leases")
    assert broken.lost.wait(60)
    deadline = time.monotonic() + 60
    while file.run("SELECT until FROM typedrag_leases") == [(before,)]:
        assert time.monotonic() < deadline  # it lapses, and others make the same call
        time.sleep(BEAT / 4)


@pytest.mark.parametrize(("statement", "ran"), [("INSERT INTO typedrag_leases", True), ("DELETE", False)])
def test_a_lease_lapses_where_the_database_fails_at_it_or_at_its_release(file, statement, ran):
    broken = LostOnce(file, statement, ran=ran)
    one, two = Leases(broken, BEAT), Leases(file, BEAT)
    with suppress(StorageFull):
        one.take("call")
        one.release("call")
    assert broken.lost.is_set()
    time.sleep(4 * BEAT)
    assert two.take("call")


# permission, and what is no reply of ours


def test_a_call_whose_reply_is_not_kept_needs_permission(place, lm, server):
    asked = []

    def refuse(replies):
        raise KeyboardInterrupt

    with use_reply_store(place):
        with use_context(permit=asked.append):
            ask(lm), ask(lm)
        assert asked == [1]
        with use_context(permit=refuse):
            assert ask(lm)  # kept
            with pytest.raises(KeyboardInterrupt):
                ask(lm, "How?")
        assert ask(lm, "How?")  # left to who asks next
    assert len(server.calls) == 2


def test_replies_as_litellm_gives_them_are_kept(file):
    class ModelResponse(BaseModel):
        choices: list[dict[str, Any]]

    request = {"model": "x", "messages": []}
    ReplyStore(file, of_run=True).put(request, ModelResponse(choices=[{"message": {"content": "Yes."}}]))
    assert ReplyStore(file, of_run=True).get(request)["choices"][0]["message"]["content"] == "Yes."


def test_a_file_that_is_no_database_is_refused(place):
    place.write_text("no database, but text that is long enough to be looked at")
    with pytest.raises(InputError, match="LM replies cannot be kept"), use_reply_store(place):
        pass


# the user's cache


@pytest.fixture
def user_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TYPEDRAG_CACHE", str(tmp_path))
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "of-dspy"))
    monkeypatch.delattr(dspy, "cache", raising=False)

    def as_another_process():
        monkeypatch.delattr(dspy, "cache")

    return as_another_process


def answer(server, **settings):
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, **settings)):
        return DirectLM()(question="Why?")


def test_a_reply_is_kept_for_the_next_process_and_costs_nothing(server, user_cache, tmp_path):
    first = answer(server)
    user_cache()
    again = answer(server)
    assert again.answer == first.answer
    assert (again.usage.lm_calls, len(server.calls)) == (0, 1)
    assert replies_file().parent.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "of-dspy").exists()


def test_a_file_that_cannot_be_used_is_said_and_gone_without(server, user_cache, caplog):
    replies_file().parent.mkdir()
    replies_file().write_bytes(b"\x80\x04 no database" * 100)
    assert answer(server).answer
    assert caplog.text.count("LM replies are not kept") == 1


def test_the_oldest_replies_go_first_while_the_process_runs(server, user_cache, monkeypatch):
    monkeypatch.setattr(replies, "CAPACITY", 2)
    with use_lm(open_lm("vllm:stub", api_base=server.api_base)):
        for n in range(4):
            DirectLM()(question=f"Why {n}?")
    with sqlite3.connect(replies_file()) as file:
        assert [n for (n,) in file.execute("SELECT rowid FROM typedrag_replies ORDER BY rowid")] == [3, 4]
