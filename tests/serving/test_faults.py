"""What strangers see where the LM or the index fails: a clear status, never an empty answer, and then answers again."""

import shutil
import threading
import time

import dspy
import pytest

from tests.lm_server import LMServer, lm_server
from tests.serving.process import process
from tests.serving.server import program, served
from typedrag.core.errors import RetrievalError
from typedrag.retrieval import BM25Retriever

GARBAGE = "<html>502 Bad Gateway</html>"


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        ((429, "slow down"), 503, "lm_failed"),
        ((500, "out of memory"), 503, "lm_failed"),
        ((401, "no such key"), 503, "lm_unavailable"),
        (GARBAGE, 503, "lm_failed"),
        ({"something": "else"}, 502, "no_answer"),
    ],
)
def test_an_lm_that_fails_is_told_as_such(reply, status, code):
    with lm_server(reply=lambda call: reply) as lm, served(program(lm)) as server:
        answer = server.ask("Why?")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert int(answer.headers["Retry-After"]) >= 1
    assert "127.0.0.1" not in answer.text


def test_who_wants_no_events_gets_an_answer_whose_reply_was_no_stream():
    with lm_server(cut=(9, 2)) as lm, served(program(lm)) as server:
        assert server.ask("Why does bread rise?").status_code == 200
        assert len(lm.calls) == 1


def test_an_lm_that_was_gone_and_is_back_answers_again():
    """While it is gone, questions after the first are refused at once; the first after the wait is let through."""
    gone = threading.Event()
    gone.set()
    reply = lambda call: (500, "restarting") if gone.is_set() else {"answer": "So it is."}  # noqa: E731
    with lm_server(reply=reply) as lm, served(program(lm), breaker_failures=2, breaker_seconds=1) as server:
        assert [server.ask(f"Why {n}?").status_code for n in range(5)] == [503] * 5
        assert len(lm.calls) == 2
        gone.clear()
        time.sleep(1.1)
        assert [server.ask(f"How {n}?").status_code for n in range(3)] == [200] * 3


def test_a_kept_reply_does_not_show_that_the_lm_is_back(tmp_path):
    gone = threading.Event()
    reply = lambda call: (401, "no such key") if gone.is_set() else None  # noqa: E731
    arguments = ("--program", "direct_lm", "--breaker-failures", "1", "--breaker-seconds", "1")
    with lm_server(reply=reply) as lm, process(lm, tmp_path, *arguments) as server:
        assert [server.ask("Why?").status_code for _ in range(2)] == [200, 200]
        assert len(lm.calls) == 1
        gone.set()
        assert server.ask("And this?").status_code == 503
        time.sleep(1.1)
        assert server.ask("Why?").status_code == 503  # the trial
        assert len(lm.calls) == 3
        gone.clear()
        time.sleep(1.1)
        assert [server.ask("Why?").status_code for _ in range(2)] == [200, 200]
        assert len(lm.calls) == 4


def test_an_index_that_cannot_be_searched_is_told_as_such():
    class Torn:
        def search(self, queries, k):
            raise RetrievalError("index /srv/index cannot be searched: torn")

    with lm_server() as lm, served(program(lm, "rag", Torn())) as server:
        answer = server.ask("Why?")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "index_unavailable")
    assert "/srv" not in answer.text
    assert lm.calls == []


def test_an_index_that_is_removed_under_it_is_still_searched(sample_index, tmp_path):
    """Lucene holds its files open: a new index takes the place of the old one when the program is loaded anew."""
    folder = tmp_path / "index"
    shutil.copytree(sample_index, folder)
    with lm_server() as lm, served(program(lm, "rag", BM25Retriever(folder))) as server:
        assert server.ask("Why does bread rise?").json()["passages"]
        shutil.rmtree(folder)
        assert server.ask("How do vaccines work?").json()["passages"]


def test_nothing_is_left_of_questions_that_ended(sample_retriever):
    traced = len(dspy.settings.trace)
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        for n in range(5):
            server.ask(f"Why does bread {n} rise?")
        assert server.under_way == 0
    assert len(dspy.settings.trace) == traced
    assert isinstance(lm, LMServer)
