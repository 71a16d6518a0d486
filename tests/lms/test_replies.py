from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from typedrag.errors import InputError, StorageFull
from typedrag.files.sqlite import SQLiteFile
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import HELD, TABLES, Replies, permission, replies_kept
from typedrag.lms.spending import Account, charging, metered
from typedrag.lms.trail import Stopwatch, counting_replays

BEAT = 0.2


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'replies.sqlite'}"


@pytest.fixture
def lm(server):
    return metered(open_lm("vllm:stub", api_base=server.api_base, num_retries=0, cache=True))


def ask(lm, question="Why?"):
    with use_lm(lm):
        return dspy.Predict("question -> answer")(question=question).answer


def test_what_was_asked_is_not_asked_again_and_costs_nothing(url, lm, server):
    server.seconds = 0.1
    with replies_kept(url), charging(Account()) as paid:
        first = ask(lm)
    with replies_kept(url), charging(Account()) as again, counting_replays(), dspy.track_usage() as used:
        watch = Stopwatch()
        assert ask(lm) == first
        assert watch.seconds >= 0.1
    assert len(server.calls) == 1
    assert (paid.spent.tokens, again.spent.tokens) == (110, 0)
    assert used.get_total_tokens()[lm.model]["total_tokens"] == 110


def test_other_settings_are_other_calls(url, lm, server):
    with replies_kept(url) as replies:
        ask(lm)
        ask(lm, "How?")
        ask(lm.copy(temperature=0.5))
        ask(lm.copy(temperature=0.5, rollout_id=1))
        assert len(replies) == len(server.calls) == 4


def test_without_a_cache_nothing_is_kept(url, lm, server):
    with replies_kept(url) as replies:
        for _ in range(2):
            ask(lm.copy(cache=False))
        assert (len(replies), len(server.calls)) == (0, 2)


def test_what_is_asked_by_many_at_once_is_asked_once(url, lm, server):
    server.seconds = 0.2
    with replies_kept(url):
        context = dspy.settings.copy()
        answers = []

        def work():
            with dspy.context(**context):
                answers.append(ask(lm))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.calls) == 1
    assert len(answers) == 6


def test_a_call_that_fails_is_left_to_who_asks_next(url, lm, server):
    server.reply = lambda call: (400, "no") if len(server.calls) == 1 else None
    with replies_kept(url, BEAT):
        with pytest.raises(dspy.utils.exceptions.LMError):
            ask(lm)
        assert ask(lm)
    assert len(server.calls) == 2


def test_the_claim_of_a_worker_that_is_no_more_lapses(url, lm, server):
    request = {"model": "m", "messages": [], "_fn_identifier": "f"}
    dead, living = Replies(url, BEAT), Replies(url, BEAT)
    assert dead.get(request) is None  # it asks, and is killed
    dead._closed.set()
    dead._beating.join()
    started = time.monotonic()
    assert living.get(request) is None
    assert BEAT < time.monotonic() - started < 20 * BEAT
    living.put(request, {"usage": {}, "text": "so"})
    assert Replies(url, BEAT).get(request) == {"usage": {}, "text": "so"}


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
    return SQLiteFile(tmp_path / "replies.sqlite", HELD, *TABLES)


def test_the_claims_of_a_process_end_with_it(url):
    request = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
    claim = f"""
import sys
from typedrag.lms.replies import Replies
print(Replies({url!r}, heartbeat=20).get({request!r}), flush=True)
sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", claim], text=True, **pipes) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stdout.readline() == "None\n"
        replies = Replies(url)
        reply = pool.submit(replies.get, request)
        with pytest.raises(TimeoutError):
            reply.result(2)  # while it runs, its reply is waited for
        process.kill()
        process.wait()
        assert reply.result(30) is None  # its claim would lapse after 60 seconds
    replies.close()


def test_a_heartbeat_goes_on_after_a_fault_of_the_database(file):
    request = {"model": "m", "messages": [], "_fn_identifier": "f"}
    broken = LostOnce(file, "UPDATE")
    one = Replies(broken, BEAT)
    assert one.get(request) is None
    [(before,)] = file.run("SELECT until FROM typedrag_asked")
    assert broken.lost.wait(10)
    deadline = time.monotonic() + 10
    while file.run("SELECT until FROM typedrag_asked") == [(before,)]:
        assert time.monotonic() < deadline  # it lapses, and others make the same call
        time.sleep(BEAT / 4)


@pytest.mark.parametrize(("statement", "ran"), [("INSERT INTO typedrag_asked", True), ("DELETE", False)])
def test_a_claim_lapses_where_the_database_fails_at_it_or_at_its_release(file, statement, ran):
    request = {"model": "m", "messages": [], "_fn_identifier": "f"}
    broken = LostOnce(file, statement, ran=ran)
    one = Replies(broken, BEAT)
    with suppress(StorageFull):
        one.get(request)
        one.release()
    assert broken.lost.is_set()
    told = []
    waiting = threading.Thread(target=lambda: told.append(Replies(file, BEAT).get(request)), daemon=True)
    waiting.start()
    waiting.join(30 * BEAT)
    assert told == [None]  # it is to make the call


def test_what_was_interrupted_is_left_to_who_asks_next(url):
    request = {"model": "m", "messages": [], "_fn_identifier": "f"}
    interrupted = Replies(url)
    assert interrupted.get(request) is None
    interrupted.close()
    assert Replies(url).get(request) is None  # at once: its claim would last for half a minute


def test_a_call_whose_reply_is_not_kept_needs_permission(url, lm, server):
    asked = []
    token = permission.set(asked.append)
    try:
        with replies_kept(url):
            ask(lm), ask(lm)
            assert asked == [1]

            def refuse(replies):
                raise KeyboardInterrupt

            permission.set(refuse)
            assert ask(lm)  # kept
            with pytest.raises(KeyboardInterrupt):
                ask(lm, "How?")
            permission.set(None)
            assert ask(lm, "How?")  # left to who asks next
    finally:
        permission.reset(token)
    assert len(server.calls) == 2


def test_replies_as_litellm_gives_them_are_kept(url):
    class ModelResponse(BaseModel):
        choices: list[dict[str, Any]]

    request = {"model": "x", "messages": []}
    first = Replies(url)
    first.put(request, ModelResponse(choices=[{"message": {"content": "Yes."}}]))
    first.close()
    assert Replies(url).get(request)["choices"][0]["message"]["content"] == "Yes."


def test_dspys_own_cache_comes_back(url):
    before = dspy.cache
    with replies_kept(url) as replies:
        assert dspy.cache is replies
    assert dspy.cache is before


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "replies.sqlite").write_text("no database, but text that is long enough to be looked at")
    with pytest.raises(InputError, match="LM replies cannot be kept"):
        Replies(f"sqlite:///{tmp_path / 'replies.sqlite'}")
