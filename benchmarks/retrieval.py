"""The time that typedrag adds to Anserini's own search and indexing.

search     Queries per second of `BM25Retriever.search`, which returns passages with their texts,
           beside Anserini's calls alone on the same searcher, which return unread
           hits: `search` for one query, `batch_search` with as many threads for more. k = 5. For a
           second row typedrag opens the index again for each round, so that it has no passages
           in memory; in a third, Anserini's caller reads the hits' ids, scores and stored texts.
indexing   Passages per second of `build_index` beside Anserini's IndexCollection, run in the same
           Java runtime with as many threads over the same passages in JSON files.

Both sides take turns for several rounds after a warm-up; medians are shown. The corpus is drawn
with a seed from the sentences of the sample corpus, mixed with rare words of a Zipf
distribution, unless --corpus names another; queries are drawn from its passages, unless --queries does.

    python -m benchmarks.retrieval --check
"""

import argparse
import itertools
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim, report
from typedrag import BM25Retriever, Passage
from typedrag.cli.terminal import run
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import build_index, read_passages
from typedrag.retrieval.index.bm25_part import LUCENE, contents
from typedrag.retrieval.index.generations import open_current
from typedrag.retrieval.index.lucene import java_class

K = 5
BATCHES = (1, 16, 256)
GOAL = 0.9
RARE_WORDS = 20_000
THREADS = os.cpu_count() or 1


def synthetic_passages(count: int, seed: int) -> list[Passage]:
    """Passages of five sentences each; every eighth word is a rare one."""
    generator = random.Random(seed)
    samples = list(read_passages([PASSAGES]))
    sentences = [s for p in samples for s in re.split(r"(?<=[.!?])\s+", p.text)]
    vocabulary = sorted({word for s in sentences for word in re.findall(r"[a-z]{4,}", s)})
    rare = [
        a[: len(a) // 2 + 1] + b[len(b) // 2 :]
        for a, b in zip(*(generator.choices(vocabulary, k=RARE_WORDS) for _ in "ab"), strict=True)
    ]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, RARE_WORDS + 1)))

    def word(plain: str) -> str:
        return generator.choices(rare, cum_weights=weights)[0] if generator.random() < 1 / 8 else plain

    return [
        Passage(
            id=f"p{number}",
            title=" ".join(map(word, generator.choice(samples).title.split())),
            text=" ".join(word(w) for s in generator.choices(sentences, k=5) for w in s.split()),
        )
        for number in range(count)
    ]


def draw_queries(passages: Sequence[Passage], count: int, seed: int) -> list[str]:
    """Queries of 4 to 10 consecutive words of a passage, half of them after its title."""
    generator = random.Random(seed)

    def query() -> str:
        passage = generator.choice(passages)
        words, length = passage.text.split(), generator.randint(4, 10)
        start = generator.randrange(max(1, len(words) - length))
        title = passage.title if generator.random() < 1 / 2 else ""
        return f"{title} {' '.join(words[start : start + length])}".strip()

    return [query() for _ in range(count)]


class Anserini:
    """Anserini's searcher over an index, called as in its own documentation."""

    def __init__(self, retriever: BM25Retriever) -> None:
        lucene = str(open_current(retriever.index, lambda folder: folder / LUCENE))
        self._searcher = java_class("io.anserini.search.SimpleSearcher")(lucene)
        self._searcher.set_bm25(retriever.k1, retriever.b)
        self._array_list = java_class("java.util.ArrayList")

    def search(self, queries: Sequence[str]) -> list[Any]:
        """The unread hits of each query."""
        if len(queries) == 1:
            return [self._searcher.search(queries[0], K)]
        texts, numbers = self._array_list(), self._array_list()
        for number, query in enumerate(queries):
            texts.add(query)
            numbers.add(str(number))
        hits = self._searcher.batch_search(texts, numbers, K, THREADS)
        return [hits.get(str(number)) for number in range(len(queries))]

    def search_and_read(self, queries: Sequence[str]) -> list[list[tuple[str, float, str]]]:
        """The id, score and stored text of each query's hits."""
        return [
            [(hit.docid, hit.score, hit.lucene_document.get("raw")) for hit in hits or ()]
            for hits in self.search(queries)
        ]


def searching(retriever: BM25Retriever, queries: Sequence[str], rounds: int) -> Iterator[Claim]:
    """Claims about batches of each size."""
    anserini = Anserini(retriever)

    def search(batches: list[Sequence[str]], search_batch: Callable[[Sequence[str]], object]) -> None:
        for batch in batches:
            search_batch(batch)

    def search_anew(batches: list[Sequence[str]]) -> None:
        opened = BM25Retriever(retriever.index, threads=THREADS)
        search(batches, lambda batch: opened.search(batch, K))

    for size in BATCHES:
        batches = [queries[i : i + size] for i in range(0, len(queries) - size + 1, size)]
        ours, new, alone, read = medians(
            [
                partial(search, batches, lambda batch: retriever.search(batch, K)),
                partial(search_anew, batches),
                partial(search, batches, anserini.search),
                partial(search, batches, anserini.search_and_read),
            ],
            rounds,
        )
        count = len(batches) * size
        yield Claim(f"search, batches of {size}", count / ours, count / alone, "queries/s", least=GOAL)
        yield Claim(f"search, batches of {size}, reopened", count / new, count / alone, "queries/s")
        yield Claim(f"search, batches of {size}, hits read", count / ours, count / read, "queries/s")


def indexing(passages: Sequence[Passage], folder: Path, rounds: int) -> Claim:
    """The claim about building an index."""
    rows = folder / "rows"
    rows.mkdir()
    for part in range(THREADS):  # a file is read by one thread
        lines = (json.dumps({"id": p.id, "contents": contents(p)}) for p in passages[part::THREADS])
        (rows / f"{part}.jsonl").write_text("\n".join(lines), "utf-8")
    arguments = "-collection JsonCollection -generator DefaultLuceneDocumentGenerator -storeRaw -quiet".split()
    arguments += ["-input", str(rows), "-index", str(folder / "anserini"), "-threads", str(THREADS)]
    collection = java_class("io.anserini.index.IndexCollection")
    ours, alone = medians(
        [
            lambda: build_index(passages, folder / "rebuilt", sources=["benchmark"], threads=THREADS, force=True),
            lambda: collection.main(arguments),
        ],
        rounds,
    )
    return Claim(f"indexing {len(passages):,} passages", len(passages) / ours, len(passages) / alone, "passages/s")


def medians(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of functions that take turns, after a third as many rounds of warm-up."""
    seconds = [[timed(function) for function in functions] for _ in range(rounds + max(1, rounds // 3))]
    return [statistics.median(column) for column in zip(*seconds[-rounds:], strict=True)]


def timed(function: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="JSONL with id, title and text, perhaps gzipped")
    parser.add_argument("--queries", type=Path, help="a query a line")
    parser.add_argument("--passages", type=int, default=8000, help="of the synthetic corpus (default: 8000)")
    parser.add_argument("--query-count", type=int, default=1024, help="queries to draw (default: 1024)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that medians are taken of (default: 9)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    passages = (
        list(read_passages([arguments.corpus]))
        if arguments.corpus
        else synthetic_passages(arguments.passages, arguments.seed)
    )
    queries = (
        arguments.queries.read_text("utf-8").splitlines()
        if arguments.queries
        else draw_queries(passages, arguments.query_count, arguments.seed)
    )
    with tempfile.TemporaryDirectory() as folder:
        build_index(passages, Path(folder, "index"), sources=["benchmark"])
        claims = list(searching(BM25Retriever(Path(folder, "index"), threads=THREADS), queries, arguments.rounds))
        claims.append(indexing(passages, Path(folder), max(3, arguments.rounds // 3)))
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
