from __future__ import annotations

import sqlite3

import dspy
import pytest

from tests.lm_server import lm_server
from typedrag.lms import reply_cache
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.reply_cache import ReplyCache, replies_file
from typedrag.programs import DirectLM


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TYPEDRAG_CACHE", str(tmp_path))
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "of-dspy"))
    monkeypatch.delattr(dspy, "cache")


def ask(server, **settings):
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, **settings)):
        return DirectLM()(question="Why?")


def test_a_reply_is_kept_for_the_next_process_and_costs_nothing(server, monkeypatch, tmp_path):
    first = ask(server)
    monkeypatch.setattr(dspy, "cache", ReplyCache())  # as another process has it
    again = ask(server)
    assert again.answer == first.answer
    assert (again.usage.lm_calls, len(server.calls)) == (0, 1)
    assert replies_file().parent.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "of-dspy").exists()


def test_another_server_is_asked_itself(server):
    ask(server)
    with lm_server(reply=lambda call: {"answer": "Otherwise."}) as other:
        assert ask(other).answer == "Otherwise."
        assert len(other.calls) == 1


def test_without_the_cache_and_at_another_timeout(server):
    ask(server)
    ask(server, cache=False)
    ask(server, timeout=9.0)  # which no reply depends on
    assert len(server.calls) == 2


def test_a_file_that_cannot_be_used_is_said_and_gone_without(server, caplog):
    replies_file().parent.mkdir()
    replies_file().write_bytes(b"\x80\x04 no database" * 100)
    assert ask(server).answer
    assert caplog.text.count("LM replies are not kept") == 1


def test_the_oldest_replies_go_first(server, monkeypatch):
    monkeypatch.setattr(reply_cache, "MOST", 2)
    with use_lm(open_lm("vllm:stub", api_base=server.api_base)):
        for n in range(4):
            DirectLM()(question=f"Why {n}?")
    monkeypatch.setattr(dspy, "cache", ReplyCache())
    ask(server)
    with sqlite3.connect(replies_file()) as file:
        assert [n for (n,) in file.execute("SELECT number FROM replies ORDER BY number")] == [3, 4, 5]


def test_a_cache_that_was_configured_stays(server, monkeypatch):
    configured = dspy.clients.Cache(enable_disk_cache=False, enable_memory_cache=True, disk_cache_dir=None)
    monkeypatch.setattr(dspy, "cache", configured, raising=False)
    ask(server)
    assert dspy.cache is configured
    assert not replies_file().exists()
