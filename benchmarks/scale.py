"""The growth of an index: its build and its searches by the number of its passages.

generate   Write passages of the shape of DPR's Wikipedia: a TSV file with the columns id, text and title, 100 words a
           passage. Sentences of the sample corpus, a third of whose words are drawn from a million others by a
           Zipf distribution. The first N rows are the same in files of all sizes.
queries    Write queries, a line each: 4 to 10 consecutive words of a passage, half of them after its title.
build      Run `typedrag index build`; say its passages a second, CPU time, peak of memory, and size on disk.
check      Say how many passages Lucene holds, and how many different ids.
dense      Build the dense part of an index of its own; the embeddings are random unit vectors.
search     Say the milliseconds of one query (median, 99th percentile, CPU) and queries a second in batches.

    python -m benchmarks.scale generate passages.tsv.gz --passages 2000000
    python -m benchmarks.scale queries passages.tsv.gz queries.txt
    python -m benchmarks.scale build passages.tsv.gz my-index
    python -m benchmarks.scale search my-index queries.txt

Each prints a line of JSON. What Java is told can be changed for a run: `_JAVA_OPTIONS=-XX:TieredStopAtLevel=4`.
"""

import argparse
import csv
import gzip
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.retrieval import draw_queries
from typedrag.cli.terminal import run
from typedrag.core.records import Passage
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import (
    BM25Retriever,
    DenseRetriever,
    Encoder,
    build_index,
    read_manifest,
    read_passages,
)
from typedrag.retrieval.encoder import Embeddings
from typedrag.retrieval.index.bm25_part import LUCENE, has_bm25
from typedrag.retrieval.index.generations import open_current
from typedrag.retrieval.index.lucene import in_java, java_class, java_path

K = 5
BATCH = 256
WORDS = 100
RARE_WORDS = 1_000_000
RARE_SHARE = 1 / 3
ARTICLE = 6
"""Passages in a row with one title."""
ENCODER = "all-minilm-l6-v2"
DIMENSIONS = 384
_BLOCK = 10_000


def generated_passages(count: int, seed: int = 1) -> Iterator[Passage]:
    """Yield passages of 100 words, in bounded memory."""
    samples = list(read_passages([PASSAGES]))
    sentences = [s.split() for p in samples for s in re.split(r"(?<=[.!?])\s+", p.text)]
    titles = [p.title for p in samples]
    rare = _rare_words({word for s in sentences for word in s if re.fullmatch("[a-z]{4,}", word)}, seed)
    title = ""
    for start in range(0, count, _BLOCK):
        numbers = np.random.default_rng([seed, start])
        drawn = iter(numbers.integers(len(sentences), size=_BLOCK * WORDS).tolist())
        # the rank of a Zipf distribution is the exponential of a uniform number
        ranks = iter(np.exp(numbers.random(_BLOCK * (WORDS + 1)) * np.log(RARE_WORDS)).astype(int).tolist())
        is_rare = numbers.random((_BLOCK, WORDS)) < RARE_SHARE
        for number, places in zip(range(start, min(count, start + _BLOCK)), is_rare, strict=False):
            words = list(islice(chain.from_iterable(sentences[i] for i in drawn), WORDS))
            for place in np.flatnonzero(places).tolist():
                words[place] = rare[next(ranks) - 1]
            if number % ARTICLE == 0 or not title:
                title = f"{titles[next(drawn) % len(titles)]} {rare[next(ranks) - 1]}"
            yield Passage(id=str(number + 1), text=" ".join(words), title=title)


def _rare_words(words: set[str], seed: int) -> list[str]:
    """A million words, each of the halves of two."""
    known, generator = sorted(words), random.Random(seed)
    rare = dict[str, None]()
    while len(rare) < RARE_WORDS:
        a, b = generator.choices(known, k=2)
        rare[a[: generator.randint(2, len(a))] + b[-generator.randint(2, len(b)) :]] = None
    return list(rare)


def write_passages(file: Path, count: int) -> None:
    """Write generated passages as DPR's file has them."""
    with gzip.open(file, "wb", compresslevel=1) as binary, io.TextIOWrapper(binary, "utf-8", newline="") as text:
        rows = csv.writer(text, delimiter="\t", lineterminator="\n")
        rows.writerow(["id", "text", "title"])
        rows.writerows((p.id, p.text, p.title) for p in generated_passages(count))


def built(file: Path, index: Path) -> dict[str, Any]:
    """The figures of a build by the command line."""
    start, peak, own = time.perf_counter(), 0, 0
    command = [sys.executable, "-m", "typedrag", "index", "build", str(file), "--out", str(index)]
    child = psutil.Popen(command, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        try:
            memory, cpu = child.memory_info(), child.cpu_times()
        except psutil.NoSuchProcess:
            break
        peak, own = max(peak, memory.rss), max(own, memory.rss - memory.shared)
        time.sleep(0.2)
    seconds, passages = time.perf_counter() - start, read_manifest(index).passages
    return {
        "passages": passages,
        "a second": round(passages / seconds),
        "disk MB": _megabytes_on_disk(index),
        "seconds": round(seconds, 1),
        "CPU s": round(cpu.user + cpu.system, 1),
        "peak RSS MB": peak >> 20,
        "without mapped files MB": own >> 20,
    }


def _megabytes_on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) >> 20


def counted(index: Path) -> dict[str, Any]:
    """The number of passages and of different ids that Lucene holds."""
    with in_java(f"index {index} cannot be read"):
        folder = java_class("java.nio.file.Paths").get(java_path(open_current(index, lambda folder: folder / LUCENE)))
        reader = java_class("org.apache.lucene.index.DirectoryReader").open(
            java_class("org.apache.lucene.store.FSDirectory").open(folder)
        )
        from jnius import cast

        terms = java_class("org.apache.lucene.index.MultiTerms").getTerms(
            cast("org.apache.lucene.index.IndexReader", reader), "id"
        )
        return {"passages": reader.numDocs(), "ids": sum(1 for _ in iter(terms.iterator().next, None))}


class RandomEncoder(Encoder):
    """An encoder to random unit vectors; the first passage is embedded, so that the index can be opened."""

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        """Vectors that depend on the queries' length."""
        return _unit_vectors(len(queries), seed=sum(map(len, queries)))

    def encode_passages(self, passages: Sequence[Passage]) -> Embeddings:
        """Vectors that depend on the first passage's id."""
        if len(passages) > 1 and passages[0].id != "1":
            return _unit_vectors(len(passages), seed=int(passages[0].id))
        return np.concatenate([super().encode_passages(passages[:1]), _unit_vectors(len(passages) - 1, seed=0)])


def _unit_vectors(count: int, seed: int) -> Embeddings:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS), np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def embedded(file: Path, index: Path, count: int) -> dict[str, Any]:
    """The figures of building the dense part of the first passages of a file."""
    encoder = RandomEncoder(ENCODER)
    start, cpu, before = time.perf_counter(), time.process_time(), psutil.Process().memory_info().rss
    passages = islice(read_passages([file]), count)
    build_index(passages, index, sources=[str(file)], bm25=False, encoder=encoder)
    return {
        "passages": count,
        "seconds": round(time.perf_counter() - start, 1),
        "CPU s": round(time.process_time() - cpu, 1),
        "RSS MB before": before >> 20,
        "peak RSS MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "disk MB": _megabytes_on_disk(index),
    }


def searched(index: Path, queries: Sequence[str], count: int) -> dict[str, Any]:
    """The figures of searching for a number of queries, one by one and in batches, each after as many others."""
    memory = psutil.Process()
    start = time.perf_counter()
    retriever = BM25Retriever(index) if has_bm25(index) else DenseRetriever(index)
    opening, size = time.perf_counter() - start, min(BATCH, count)
    left, rounds = iter(queries), count // size
    if isinstance(retriever, DenseRetriever):
        retriever.encoder.__class__ = RandomEncoder  # the model's own time does not depend on the index
    first = memory.memory_info()
    _timed(retriever, left, count, 1)
    single, cpu, own = _timed(retriever, left, count, 1)
    _timed(retriever, left, rounds, size)
    batch, batch_cpu, _ = _timed(retriever, left, rounds, size)
    after = memory.memory_info()
    return {
        "load": round(os.getloadavg()[0]),
        "opening s": round(opening, 1),
        "queries": count,
        "p50 ms": round(float(np.percentile(single, 50)) * 1e3, 2),
        "p99 ms": round(float(np.percentile(single, 99)) * 1e3, 2),
        "a second": round(count / sum(single), 1),
        "CPU ms": round(cpu / count * 1e3, 2),
        "CPU ms of its thread": round(own / count * 1e3, 2),
        "batched a second": round(size * rounds / sum(batch), 1),
        "batched CPU ms": round(batch_cpu / rounds / size * 1e3, 2),
        "RSS MB opened": first.rss >> 20,
        "RSS MB": after.rss >> 20,
        "without mapped files MB": (after.rss - after.shared) >> 20,
    }


def _timed(
    retriever: BM25Retriever | DenseRetriever, queries: Iterator[str], rounds: int, size: int
) -> tuple[list[float], float, float]:
    """The seconds of each search; the CPU seconds of all, and those that the calling thread took of them."""
    times, cpu, own = list[float](), time.process_time(), time.thread_time()
    for _ in range(rounds):
        batch = list(islice(queries, size))
        start = time.perf_counter()
        retriever.search(batch, K)
        times.append(time.perf_counter() - start)
    return times, time.process_time() - cpu, time.thread_time() - own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    generate, drawing = actions.add_parser("generate"), actions.add_parser("queries")
    build, check = actions.add_parser("build"), actions.add_parser("check")
    dense, search = actions.add_parser("dense"), actions.add_parser("search")
    for action in (generate, drawing, build, dense):
        action.add_argument("file", type=Path)
    drawing.add_argument("queries", type=Path)
    for action in (build, check, dense, search):
        action.add_argument("index", type=Path)
    search.add_argument("queries", type=Path)
    for action in (generate, dense):
        action.add_argument("--passages", type=int, default=10_000)
    drawing.add_argument("--count", type=int, default=100_000)
    search.add_argument("--count", type=int, default=2_000, help="queries of each measurement (default: 2000)")
    arguments = parser.parse_args()
    match arguments.action:
        case "generate":
            write_passages(arguments.file, arguments.passages)
            figures: dict[str, Any] = {"passages": arguments.passages, "MB": arguments.file.stat().st_size >> 20}
        case "queries":
            queries = draw_queries(list(islice(read_passages([arguments.file]), 10_000)), arguments.count, seed=1)
            arguments.queries.write_text("\n".join(queries), "utf-8")
            figures = {"queries": len(queries)}
        case "build":
            figures = built(arguments.file, arguments.index)
        case "check":
            figures = counted(arguments.index)
        case "dense":
            figures = embedded(arguments.file, arguments.index, arguments.passages)
        case _:
            figures = searched(arguments.index, arguments.queries.read_text("utf-8").splitlines(), arguments.count)
    print(json.dumps(figures))


if __name__ == "__main__":
    run(main)
