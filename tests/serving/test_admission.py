"""What a client may ask, and that no other has to wait for one that asks much."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.lm_server import lm_server
from tests.serving.server import program, served
from tests.serving.test_guard import bearer, keyed
from tests.serving.test_mcp import at, call
from typedrag.core.call_context import use_context
from typedrag.serving import routes
from typedrag.serving.admission import Admission, Allowance, Turns
from typedrag.serving.monitoring import Metrics, RequestLine
from typedrag.serving.responses import Refused
from typedrag.serving.settings import Settings


def test_an_allowance_fills_up_with_time_and_what_is_owed_is_made_up_for_first():
    now = 0.0
    rates = Allowance(60, lambda: now, most=2)
    assert [rates.take("a", 2) for _ in range(3)] == [1, 0, -1]
    now = 29.0
    assert rates.left("a", 2) == pytest.approx(-1 / 30)
    now = 90.0
    assert rates.left("a", 2) == 2
    assert rates.take("a", 2, 10) == -8
    rates.take("b", 2), rates.take("c", 2)
    assert rates.left("a", 2) == 2  # forgotten


async def ask(turns: Turns, client: str, name: str, answered: list[str], go_on: asyncio.Event) -> str:
    with use_context(request=RequestLine(address=client)):
        try:
            async with turns.take():
                answered.append(name)
                await go_on.wait()
        except Refused as refused:
            return refused.fault.code
    return "answered"


async def outcomes(asked: list[str], queue: int, give_up: str = "") -> tuple[list[str], list[str]]:
    """The questions in the order of their turns, and how each ended; the first word of each names its client."""
    turns = Admission(Settings(), Metrics()).turns(running=1, queue=queue)
    answered: list[str] = []
    go_on = asyncio.Event()
    tasks = {name: asyncio.create_task(ask(turns, name.split()[0], name, answered, go_on)) for name in asked}
    await asyncio.sleep(0.01)
    if give_up:
        tasks[give_up].cancel()
    go_on.set()
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert turns.under_way == 0
    return answered, [str(end) for end in ended if not isinstance(end, asyncio.CancelledError)]


def test_clients_that_wait_take_turns():
    asked = ["ann 0", "ann 1", "ann 2", "ann 3", "carl 0", "bob 0", "bob 1"]
    answered, ended = asyncio.run(outcomes(asked, queue=9, give_up="carl 0"))
    assert answered == ["ann 0", "ann 1", "bob 0", "ann 2", "bob 1", "ann 3"]
    assert ended == ["answered"] * 6


def test_a_full_queue_makes_room_for_who_holds_less():
    asked = ["ann 0", "ann 1", "ann 2", "ann 3", "bob 0", "bob 1", "bob 2", "ann 4"]
    answered, ended = asyncio.run(outcomes(asked, queue=3))
    assert answered == ["ann 0", "ann 1", "bob 0", "bob 1"]
    assert ended == ["answered", "answered", "busy", "busy", "answered", "answered", "busy", "busy"]


def test_a_turn_that_is_given_up_as_it_comes_goes_to_the_next():
    async def run() -> list[str]:
        turns = Admission(Settings(), Metrics()).turns(running=1, queue=4)
        answered: list[str] = []
        events = [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(ask(turns, "ann", str(n), answered, events[n])) for n in range(3)]
        await asyncio.sleep(0.01)
        events[0].set()
        events[2].set()
        await asyncio.sleep(0)  # the first ends, and hands its turn to the second
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert turns.under_way == 0
        return answered

    assert asyncio.run(run())[-1] == "2"


def test_one_that_asks_by_many_batches_keeps_no_other_waiting(tmp_path):
    with keyed(tmp_path, running=2, queue=20, batch=10) as (server, keys, key), ThreadPoolExecutor(8) as pool:
        other = keys.add("bob")
        server.lm.seconds = 0.3
        batches = [
            pool.submit(
                httpx.post, f"{server.url}/v1/answer/batch", timeout=60, headers=bearer(key),
                json={"questions": [f"Why {b}, {n}?" for n in range(10)]},
            )
            for b in range(4)
        ]  # fmt: skip
        while server.under_way < 22:
            time.sleep(0.01)
        begun = time.monotonic()
        reply = server.client.post("/v1/answer", json={"question": "And I?"}, headers=bearer(other))
        assert reply.status_code == 200
        assert time.monotonic() - begun < 1.5  # the others take three seconds
        errors = [one["error"]["code"] for batch in batches for one in batch.result().json()["answers"] if one["error"]]
    assert errors == ["busy"] * 19


def test_parallel_questions_have_a_limit_of_their_own():
    go_on = threading.Event()
    with (
        lm_server(reply=lambda call: go_on.wait(60) and None) as lm,
        served(program(lm), parallel=2) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        replies = [pool.submit(server.ask, f"Why {n}?") for n in range(2)]
        while server.under_way < 2:
            time.sleep(0.01)
        refused = server.ask("Why so many?")
        go_on.set()
        assert [reply.result().status_code for reply in replies] == [200, 200]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
    assert int(refused.headers["Retry-After"]) >= 1


def test_a_batch_counts_as_its_questions_and_each_reply_says_what_is_left(tmp_path):
    with keyed(tmp_path, rate=10) as (server, _, key):
        batch = {"questions": [f"Why {n}?" for n in range(8)]}
        first = server.client.post("/v1/answer/batch", json=batch, headers=bearer(key))
        second = server.client.post("/v1/answer/batch", json=batch, headers=bearer(key))
        refused = server.client.post("/v1/answer", json={"question": "Why?"}, headers=bearer(key))
        free = server.client.get("/healthz")
    of = "X-RateLimit-{}-Requests".format
    assert [reply.status_code for reply in (first, second, refused)] == [200, 200, 429]
    assert (first.headers[of("Limit")], first.headers[of("Remaining")], first.headers[of("Reset")]) == (
        "10",
        "2",
        "48s",
    )
    assert (second.headers[of("Remaining")], refused.headers[of("Remaining")]) == ("0", "0")
    assert 36 <= int(refused.headers["Retry-After"]) <= 63  # six are owed, one is wanted, and it is spread
    assert of("Limit") not in free.headers


def test_lm_tokens_of_a_day_are_counted_by_key(tmp_path):
    with keyed(tmp_path, daily_tokens=100) as (server, keys, key):
        rich = keys.add("bob", daily_tokens=100_000)
        asked = [server.client.post("/v1/answer", json={"question": f"Why {n}?"}, headers=bearer(key)) for n in (1, 2)]
        other = server.client.post("/v1/answer", json={"question": "Why 3?"}, headers=bearer(rich))
        listed = server.client.get("/v1/models", headers=bearer(key))
    assert [reply.status_code for reply in asked] == [200, 429]
    assert (asked[0].headers["X-RateLimit-Remaining-Tokens"], asked[0].json()["usage"]["prompt_tokens"]) == ("100", 100)
    assert (asked[1].json()["error"]["code"], asked[1].headers["X-RateLimit-Remaining-Tokens"]) == ("rate_limited", "0")
    assert int(asked[1].headers["Retry-After"]) > 3600  # ten more than the day's were used
    assert (other.status_code, other.headers["X-RateLimit-Limit-Tokens"], listed.status_code) == (200, "100000", 200)


def test_who_tries_many_keys_is_told_to_wait_and_keeps_nobody_else_out(tmp_path):
    with keyed(tmp_path, rate=3) as (server, _, key):
        tried = [server.client.get("/v1/models", headers=bearer(f"tr-{n}")).status_code for n in range(5)]
        assert server.client.get("/v1/models", headers=bearer(key)).status_code == 200
    assert tried == [401] * 3 + [429] * 2


class Slow:
    """An index that is searched one second."""

    def search(self, queries, k):
        time.sleep(1)
        return [[] for _ in queries]


def test_searches_of_agents_and_support_each_have_a_queue_a_deadline_and_an_end(monkeypatch):
    body = {"question": "Why?", "answer": "Bread rises.", "passages": [{"id": "a", "text": "Bread rises."}]}
    with lm_server() as lm, served(program(lm, "rag", Slow()), queue=2, deadline=1.5) as server:
        with ThreadPoolExecutor(8) as pool:
            searches = [pool.submit(call, at(server), "search", query=f"bread {n}") for n in range(7)]
            while server.under_way < 6:
                time.sleep(0.01)
            beside = server.client.post("/v1/support", json=body)
            assert server.client.get("/healthz").elapsed.total_seconds() < 1
            said = [result.content[0].text for f in searches if (result := f.result()).is_error]
        assert server.under_way == 0
        monkeypatch.setattr(routes, "supporting_sentences", lambda *_: time.sleep(1) or [])
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(httpx.post, f"{server.url}/v1/support", json=body) for _ in range(4)]
            compared = sorted(one.result().status_code for one in asked)
        server.service.admission.stopping = True
        stopping = server.client.post("/v1/support", json=body)
    assert (beside.status_code, compared) == (200, [200, 429, 504, 504])
    failed = "Error executing tool search: "
    assert sorted(said) == [f"{failed}No answer was ready in time."] * 2 + [
        f"{failed}Too many questions wait for an answer; ask again later."
    ]
    assert (stopping.status_code, stopping.json()["error"]["code"]) == (503, "stopping")
    assert stopping.headers["Connection"] == "close"
