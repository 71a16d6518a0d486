import asyncio
import threading

from tests.lm_server import lm_server
from tests.serving.server import program, served

QUESTION = "Why does homemade bread turn out dense and heavy?"
OK = {"server": "ok", "index": "ok", "lm": "ok"}


def test_a_server_whose_index_and_lm_answer_is_ready(sample_retriever):
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever), program(lm)) as server:
        reply, again = server.client.get("/readyz"), server.client.get("/readyz")
        assert len(lm.calls) == 2  # one for each program
    assert again.status_code == 200
    assert (reply.status_code, reply.json()) == (200, {"status": "ready", "parts": OK})


def test_an_lm_that_is_gone_is_named_and_nothing_else_is_told(sample_retriever):
    with lm_server() as lm:
        gone = program(lm, "typed_rag", sample_retriever)
    with served(gone) as server:
        reply = server.client.get("/readyz")
        assert server.client.get("/healthz").status_code == 200
    assert reply.status_code == 503
    assert reply.json() == {"status": "not_ready", "parts": {**OK, "lm": "unavailable"}}


def test_an_lm_that_refuses_the_key_of_answers_is_not_ready_and_one_that_hides_its_list_is():
    """As behind a gateway: only a call like those of questions shows that they will be answered."""
    with lm_server(reply=lambda call: (401, "no such key")) as lm, served(program(lm)) as server:
        assert server.client.get("/readyz").json()["parts"]["lm"] == "unavailable"
    with lm_server() as lm, served(program(lm)) as server:
        lm.models = 403
        assert server.client.get("/readyz").status_code == 200
        assert len(lm.calls) == 1


class Unsearchable:
    """An index that was taken away."""

    def search(self, queries, k):
        raise OSError("/secret/index is gone")


def test_an_index_that_cannot_be_searched_is_named():
    with lm_server() as lm, served(program(lm, "rag", Unsearchable())) as server:
        reply = server.client.get("/readyz")
    assert (reply.status_code, reply.json()["parts"]) == (503, {**OK, "index": "unavailable"})
    assert "secret" not in reply.text


def test_a_part_that_does_not_reply_in_time_is_named_in_the_log_with_the_limit(sample_retriever, caplog, monkeypatch):
    go_on = threading.Event()

    class Slow:
        def search(self, queries, k):
            go_on.wait(30)
            return [[] for _ in queries]

    for limit in ("_SECONDS", "_ANSWER_SECONDS"):
        monkeypatch.setattr(f"typedrag.serving.status.{limit}", 0.5)
    with lm_server(reply=lambda call: go_on.wait(30) and None) as lm, served(program(lm, "rag", Slow())) as server:
        assert server.client.get("/readyz").status_code == 503
        go_on.set()
    assert {record.getMessage() for record in caplog.records if record.name == "typedrag.serving.status"} == {
        "not ready: index: no reply within 0.5 s",
        "not ready: lm: no reply within 0.5 s",
    }


def test_what_was_seen_is_kept_for_probes_that_follow():
    searched = []

    class Counting:
        def search(self, queries, k):
            searched.append(queries)
            return [[] for _ in queries]

    with lm_server() as lm, served(program(lm, "rag", Counting())) as server:
        assert {server.client.get("/readyz").status_code for _ in range(20)} == {200}
    assert len(searched) == 1


def test_while_the_breaker_refuses_all_it_is_not_ready():
    reply = lambda call: (503, "gone") if call.wanted else None  # noqa: E731
    with lm_server(reply=reply) as lm, served(program(lm), breaker_failures=1) as server:
        assert server.client.get("/readyz").status_code == 200
        server.ask("Why?")
        reply = server.client.get("/readyz")
    assert (reply.status_code, reply.json()["parts"]["lm"]) == (503, "unavailable")


def test_a_server_that_is_being_stopped_is_not_ready():
    go_on = threading.Event()
    with lm_server(reply=lambda call: go_on.wait(30) and None) as lm, served(program(lm)) as server:
        replies = []
        asking = threading.Thread(target=lambda: replies.append(server.ask("Why?")))
        asking.start()
        while not lm.calls:
            asyncio.run(asyncio.sleep(0.01))
        server.service.admission.stopping = True
        reply = server.client.get("/readyz")
        assert server.ask("Why not?").json()["error"]["code"] == "stopping"
        go_on.set()
        asking.join()
    assert (reply.status_code, reply.json()["parts"]["server"]) == (503, "unavailable")
    assert replies[0].status_code == 200
