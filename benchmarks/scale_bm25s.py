"""The figures of `benchmarks.scale` for bm25s, in an environment of its own with bm25s, PyStemmer, numba and psutil.

The passages, k1, b and stemmer (Porter) are the same, and hits are texts too; its list of stop words is its own.

    python benchmarks/scale_bm25s.py passages.tsv.gz queries.txt --passages 100000 --backend numba
"""

import argparse
import csv
import gzip
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import psutil
import Stemmer

K = 5
BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--passages", type=int, required=True)
    parser.add_argument("--backend", choices=("numpy", "numba"), default="numba")
    parser.add_argument("--count", type=int, default=2_000, help="queries of each measurement (default: 2000)")
    arguments = parser.parse_args()
    process, stemmer = psutil.Process(), Stemmer.Stemmer("porter")
    start, cpu = time.perf_counter(), time.process_time()
    with gzip.open(arguments.file, "rt", encoding="utf-8", newline="") as file:
        rows = islice(csv.DictReader(file, delimiter="\t"), arguments.passages)
        texts = [f"{row['title']}\n{row['text']}" for row in rows]
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    index = bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend=arguments.backend)
    index.index(tokens, show_progress=False)
    del tokens
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    memory = process.memory_info().rss

    def search(queries: Sequence[str]) -> list[list[str]]:
        terms = bm25s.tokenize(list(queries), stopwords="en", stemmer=stemmer, show_progress=False)
        threads = 0 if len(queries) == 1 else os.cpu_count() or 1
        hits, _ = index.retrieve(terms, k=K, n_threads=threads, show_progress=False)
        return [[texts[number] for number in row] for row in hits]

    count, size = arguments.count, min(BATCH, arguments.count)
    queries, rounds = iter(arguments.queries.read_text("utf-8").splitlines()), count // size
    _timed(search, queries, count, 1)
    single, single_cpu = _timed(search, queries, count, 1)
    _timed(search, queries, rounds, size)
    batch, batch_cpu = _timed(search, queries, rounds, size)
    figures: dict[str, Any] = {
        "passages": len(texts),
        "backend": arguments.backend,
        "load": round(os.getloadavg()[0]),
        "build s": round(seconds, 1),
        "build CPU s": round(cpu, 1),
        "peak RSS MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "RSS MB built": memory >> 20,
        "RSS MB": process.memory_info().rss >> 20,
        "queries": count,
        "p50 ms": round(float(np.percentile(single, 50)) * 1e3, 2),
        "p99 ms": round(float(np.percentile(single, 99)) * 1e3, 2),
        "a second": round(count / sum(single), 1),
        "CPU ms": round(single_cpu / count * 1e3, 2),
        "batched a second": round(size * rounds / sum(batch), 1),
        "batched CPU ms": round(batch_cpu / rounds / size * 1e3, 2),
    }
    print(json.dumps(figures))


def _timed(
    search: Callable[[Sequence[str]], object], queries: Iterator[str], rounds: int, size: int
) -> tuple[list[float], float]:
    """The seconds of each search, and the CPU seconds of all."""
    times, cpu = list[float](), time.process_time()
    for _ in range(rounds):
        batch = list(islice(queries, size))
        start = time.perf_counter()
        search(batch)
        times.append(time.perf_counter() - start)
    return times, time.process_time() - cpu


if __name__ == "__main__":
    main()
