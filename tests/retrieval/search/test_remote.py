import copy
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from tests.serving.index_server import served_index
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.datasets import sample_questions
from typedrag.retrieval import (
    BM25Retriever,
    HybridRetriever,
    append_index,
    check_index,
    check_retriever,
    open_retriever,
    retriever_parts,
)
from typedrag.retrieval.search.remote import KEY, RemoteRetriever
from typedrag.serving.keys import KeyFile

QUESTIONS = [q.question for q in sample_questions()]


class Slow:
    """A retriever that searches once it may, and counts."""

    def __init__(self, retriever: BM25Retriever) -> None:
        self._retriever = retriever
        self.calls: list[int] = []
        self.may = threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._retriever, name)

    def search(self, queries, k: int) -> list[list[Passage]]:
        self.calls.append(len(queries))
        assert self.may.wait(30)
        return self._retriever.search(queries, k)


@pytest.fixture(scope="module")
def bm25_url(sample_retriever):
    with served_index(sample_retriever) as serving:
        yield serving.url


@pytest.fixture
def slow(sample_retriever):
    return Slow(sample_retriever)


@pytest.mark.parametrize("spec", ["bm25", "dense", "hybrid", "hybrid:0.123456789", "auto"])
def test_passages_order_and_scores_are_those_of_the_retriever_in_the_server(both_parts, spec):
    here = open_retriever(spec, both_parts)
    with served_index(here) as serving:
        there = open_retriever(serving.url)
        for k in (1, 7, 150):
            assert there.search(QUESTIONS, k) == here.search(QUESTIONS, k)
        assert there.search([], 5) == [] and there.search(["bread"], 0) == [[]]
        assert there.identity == here.identity and there.place == serving.url
        assert copy.deepcopy(there) is there or isinstance(there, HybridRetriever)


@pytest.mark.parametrize("spec", ["bm25", "hybrid"])
def test_settings_of_bm25_are_those_of_who_asks(both_parts, spec):
    settings = {"k1": 2.0, "b": 0.0}
    here = open_retriever(spec, both_parts, settings)
    with served_index(open_retriever(spec, both_parts)) as serving:
        there, plain = open_retriever(serving.url, None, settings), open_retriever(serving.url)
        assert there.search(QUESTIONS, 5) == here.search(QUESTIONS, 5) != plain.search(QUESTIONS, 5)
        assert there.identity == here.identity != plain.identity
        with pytest.raises(InputError, match="k1 = -1"):
            open_retriever(serving.url, None, {"k1": -1})


def test_a_reply_has_a_bounded_number_of_passages(sample_retriever, monkeypatch):
    monkeypatch.setattr("typedrag.retrieval.search.remote.MAX_REPLY", 100)
    with served_index(sample_retriever) as serving:
        asked = {"queries": ["bread"] * 11, "k": 10}
        refused = httpx.post(f"{serving.url}/v1/search", json=asked)
        assert refused.status_code == 422 and "a reply has 100 passages at most" in refused.json()["error"]["message"]
        there = open_retriever(serving.url)
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: there.search(QUESTIONS, 30), range(4)):
                assert found == sample_retriever.search(QUESTIONS, 30)


def test_a_query_with_half_a_character_is_refused_and_harms_no_other(bm25_url):
    """Other clients' searches are made in the same call as its own would be."""
    body = json.dumps({"queries": ["bread", "half bread \ud83d"], "k": 1})
    refused = httpx.post(f"{bm25_url}/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert refused.json()["error"]["message"].startswith("queries.1: ")


def test_a_full_queue_is_told_and_asked_again(slow):
    with served_index(slow, queue=1) as serving, ThreadPoolExecutor(3) as pool:
        there = open_retriever(serving.url)
        waiting = [pool.submit(_post, serving.url, query) for query in QUESTIONS[:2]]
        while serving.service.admission.under_way < 2:
            time.sleep(0.01)
        refused = _post(serving.url, "bread")
        assert refused.status_code == 429 and refused.headers["Retry-After"] in ("1", "2", "3")  # clients are spread
        later = pool.submit(there.search, ["bread"], 3)
        time.sleep(0.3)
        assert not later.done()
        slow.may.set()
        assert later.result(30) == slow._retriever.search(["bread"], 3)
        assert all(future.result().status_code == 200 for future in waiting)


def test_a_server_that_is_too_slow_says_so(slow):
    with served_index(slow, deadline=0.2) as serving:
        assert _post(serving.url, "bread").status_code == 504
        with pytest.raises(RetrievalError, match="refuses: No answer was ready in time"):
            open_retriever(serving.url).search(["bread"], 1)
        slow.may.set()


def test_keys_are_of_the_environment_alone(sample_retriever, tmp_path, monkeypatch):
    key = KeyFile(tmp_path / "keys.json").add("worker")
    with served_index(sample_retriever, keys=tmp_path / "keys.json") as serving:
        with pytest.raises(RetrievalError, match=f"lets in nobody without a key. Set {KEY} to one"):
            open_retriever(serving.url)
        monkeypatch.setenv(KEY, key)
        assert open_retriever(serving.url).search(["bread"], 3) == sample_retriever.search(["bread"], 3)
        assert httpx.get(f"{serving.url}/readyz").json()["parts"] == {"server": "ok", "index": "ok"}
        assert httpx.get(f"{serving.url}/metrics").status_code == 401


@pytest.mark.parametrize(
    "spec",
    ["http://", "https:///path", "http://host:port", "http://me:secret@host", "http://host?key=1", "http://[::1"],
)
def test_what_is_no_address_is_refused(spec):
    with pytest.raises(InputError, match="Write it like http://HOST:PORT") as refused:
        check_retriever(spec)
    assert "secret" not in str(refused.value)
    assert check_retriever("https://host/behind/a/proxy") is None


def test_an_index_beside_an_address_is_refused_by_name(bm25_url, sample_index):
    for refuse in (open_retriever, check_index):
        with pytest.raises(InputError, match=f"both --index {sample_index} and --retriever {bm25_url} are given"):
            refuse(bm25_url, sample_index)
    check_index(bm25_url)


def test_what_a_server_does_not_do_is_refused(bm25_url):
    there = open_retriever(bm25_url)
    with pytest.raises(InputError, match="does not hand out all passages"):
        there.passages()
    with pytest.raises(InputError, match="1,001 passages are wanted"):
        there.search(["bread"], 1001)
    [[first]] = there.search(["bread"], 1)
    assert there.passage(first.id) == replace(first, score=0.0) and there.passage("none") is None
    asked = {"queries": ["bread"], "k": 1, "part": "dense"}
    assert httpx.post(f"{bm25_url}/v1/search", json=asked).json()["error"]["code"] == "no_such_part"


def test_what_is_no_index_server_is_said(server):
    with pytest.raises(RetrievalError, match="no index server of this typedrag"):
        open_retriever(server.api_base.removesuffix("/v1"))
    with pytest.raises(RetrievalError, match=r"cannot be reached: .*Start it: typedrag index serve"):
        check_index("http://127.0.0.1:9")


def test_a_server_that_comes_back_is_asked_again_unless_it_has_another_index(sample_retriever, tmp_path):
    with served_index(sample_retriever) as serving:
        there = open_retriever(serving.url)
        assert there.search(["bread"], 3)
    port = urlsplit(serving.url).port
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(there.search, ["bread"], 3)
        time.sleep(0.4)
        with served_index(sample_retriever, port=port):
            assert later.result(30) == sample_retriever.search(["bread"], 3)
    grown = shutil.copytree(sample_retriever.index, tmp_path / "grown")
    append_index([Passage("new", "A new passage about bread.")], grown, sources=["new"])
    with (
        served_index(BM25Retriever(grown), port=port),
        pytest.raises(RetrievalError, match="another index than before"),
    ):
        there.search(["bread"], 3)


def _post(url: str, query: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/search", json={"queries": [query], "k": 3}, timeout=60)


def test_searches_of_many_threads_have_their_own_passages(bm25_url, sample_retriever):
    there = open_retriever(bm25_url)
    queries = [f"{question} {number % 7}" for number, question in enumerate(QUESTIONS * 8)]
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda query: there.search([query], 5)[0], queries))
    assert found == sample_retriever.search(queries, 5)


def test_parts_are_searched_alone_and_fused_here(both_parts):
    here = open_retriever("hybrid:0.3", both_parts)
    with served_index(here) as serving:
        there = open_retriever(serving.url)
        assert isinstance(there, HybridRetriever)
        lists = []
        for part, other in zip(retriever_parts(here), retriever_parts(there), strict=True):
            lists.append(part.search(QUESTIONS[:3], 20))
            assert other.search(QUESTIONS[:3], 20) == lists[-1]
        assert [there.fuse(*pair) for pair in zip(*lists, strict=True)] == [
            here.fuse(*pair) for pair in zip(*lists, strict=True)
        ]
    with served_index(here.dense) as serving:
        sparse, dense = retriever_parts(open_retriever(serving.url))
        assert sparse is None and isinstance(dense, RemoteRetriever)
