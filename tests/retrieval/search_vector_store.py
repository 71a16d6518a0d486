"""Fill a store with the sample passages, search it, and answer from it; used by test_vector_stores.py.

    python search_vector_store.py STORE PACKAGES

OpenSearch and Elasticsearch are programs in Java that no package brings. Their own clients are asked, over HTTP, by a
server which counts shared words.
"""

import json
import math
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zlib import crc32

from tests.lm_server import MODEL, lm_server
from typedrag import Answer, TypedRAG, open_lm, use_lm
from typedrag.datasets.sample import PASSAGES

ROWS = [json.loads(line) for line in PASSAGES.read_text("utf-8").splitlines()]
QUERIES = ["Why does bread dough rise with yeast?", "How do vaccines train immune cells?"]
SIZE = 512


def embed(texts: list[str]) -> list[list[float]]:
    """Vectors of hashed words, each of length 1."""
    vectors = []
    for text in texts:
        counts = Counter(crc32(word.encode()) % SIZE for word in re.findall(r"\w{4,}", text.lower()))
        length = math.sqrt(sum(n * n for n in counts.values())) or 1.0
        vectors.append([counts[i] / length for i in range(SIZE)])
    return vectors


VECTORS = embed([f"{row['title']} {row['text']}" for row in ROWS])


@contextmanager
def pgvector() -> Iterator[object]:
    import pgserver
    from psycopg_pool import ConnectionPool
    from stores.pgvector import PgVectorStore

    with tempfile.TemporaryDirectory() as folder:
        server = pgserver.get_server(folder, cleanup_mode="delete")
        with ConnectionPool(server.get_uri()) as pool:
            with pool.connection() as database:
                database.execute("create extension vector")
                database.execute(f"create table passages (id text, title text, text text, embedding vector({SIZE}))")
                insert = "insert into passages values (%s, %s, %s, %s)"
                rows = [(r["id"], r["title"], r["text"], str(v)) for r, v in zip(ROWS, VECTORS, strict=True)]
                database.cursor().executemany(insert, rows)
            yield PgVectorStore(pool, embed)
        server.cleanup()


@contextmanager
def qdrant() -> Iterator[object]:
    from qdrant_client import QdrantClient, models
    from stores.qdrant import QdrantStore

    client = QdrantClient(":memory:")
    client.create_collection("wiki", models.VectorParams(size=SIZE, distance=models.Distance.COSINE))
    points = zip(range(len(ROWS)), VECTORS, ROWS, strict=True)
    client.upsert("wiki", [models.PointStruct(id=n, vector=v, payload=row) for n, v, row in points])
    yield QdrantStore(client, "wiki", embed)


@contextmanager
def langchain() -> Iterator[object]:
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore
    from stores.langchain import LangChainStore

    class HashedWords(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return embed([text])[0]

    store = InMemoryVectorStore(HashedWords())
    titles = [{"title": row["title"]} for row in ROWS]
    store.add_texts([row["text"] for row in ROWS], titles, ids=[row["id"] for row in ROWS])
    yield LangChainStore(store)


class Searched(BaseHTTPRequestHandler):
    """The `_search` of an index `wiki`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path.partition("?")[0] == "/wiki/_search"
        match = body["query"]["multi_match"]
        assert match["fields"] == ["title", "text"]
        [vector] = embed([match["query"]])
        scores = [sum(a * b for a, b in zip(vector, other, strict=True)) for other in VECTORS]
        best = sorted(zip(scores, ROWS, strict=True), key=lambda pair: -pair[0])[: body["size"]]
        hits = [{"_index": "wiki", "_id": r["id"], "_score": s, "_source": r} for s, r in best]
        reply = json.dumps({"took": 1, "timed_out": False, "hits": {"hits": hits}}).encode()
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", self.headers["Accept"] or "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def search_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Searched)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@contextmanager
def elasticsearch() -> Iterator[object]:
    from elasticsearch import Elasticsearch
    from stores.elastic import ElasticStore

    with search_server() as url:
        yield ElasticStore(Elasticsearch(url), "wiki")


@contextmanager
def opensearch() -> Iterator[object]:
    from opensearchpy import OpenSearch
    from stores.elastic import ElasticStore

    with search_server() as url:
        yield ElasticStore(OpenSearch(url), "wiki")


STORES = {store.__name__: store for store in (pgvector, qdrant, elasticsearch, opensearch, langchain)}


def main() -> None:
    sys.path.append(sys.argv[2])  # behind typedrag's own packages, whose versions count
    with STORES[sys.argv[1]]() as store, lm_server() as lm:
        found = store.search(QUERIES, 3)
        ids = {row["text"]: row["id"] for row in ROWS}
        with use_lm(open_lm(f"vllm:{MODEL}", api_base=lm.api_base)):
            answer = Answer.from_prediction(TypedRAG(store)(question=QUERIES[0]))
    texts = {passage.text for passage in answer.passages}
    made = {
        "found": [[ids[passage.text] for passage in passages] for passages in found],
        "scores": [passage.score for passage in found[0]],
        "read": sorted(ids[text] for text in texts),
    }
    print(json.dumps(made))


if __name__ == "__main__":
    main()
