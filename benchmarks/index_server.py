"""Queries a second of an index server, over those of its retriever in the process that asks.

`typedrag index serve` has a synthetic index open in a process of its own. So many clients, threads of one process as
the questions of a program are, search it for a second each by one `RemoteRetriever`; then as many search by one
`BM25Retriever` over the same index. Both sides take turns for several rounds after a warm-up; medians are shown. A
client searches one query at a time, and in a second row 16, which is what a program's sub-queries and batches come to.
k = 5.

    python -m benchmarks.index_server --check
"""

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.claims import Claim, report
from benchmarks.retrieval import K, draw_queries, synthetic_passages
from typedrag import BM25Retriever
from typedrag.cli.terminal import run
from typedrag.retrieval import IndexRetriever, Retriever, build_index, open_retriever

GOAL = 0.8
SIZES = (1, 16)


@contextmanager
def serving(index: Path, replicas: int) -> Iterator[str]:
    """The address of a server of an index, which runs within."""
    command = [sys.executable, "-m", "typedrag", "index", "serve", "--index", str(index), "--port", "0"]
    log = index.with_name("server.log")
    with log.open("w") as lines:
        process = subprocess.Popen([*command, "--workers", str(replicas)], stderr=lines)
    try:
        while not (lines_of_start := [line for line in log.read_text().splitlines() if "typedrag serves" in line]):
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        yield lines_of_start[0].split()[-1]
    finally:
        process.terminate()
        process.wait()


def rate(retriever: Retriever, batches: Sequence[Sequence[str]], clients: int, seconds: float) -> float:
    """Queries a second that so many clients get, each with its next batch once it has the last one's passages."""
    begun = time.perf_counter()
    turns = itertools.cycle(batches)

    def search() -> int:
        count = 0
        while time.perf_counter() < begun + seconds:
            count += len(retriever.search(next(turns), K))
        return count

    with ThreadPoolExecutor(clients) as pool:
        total = sum(future.result() for future in [pool.submit(search) for _ in range(clients)])
    return total / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--passages", type=int, default=8000, help="of the synthetic corpus (default: 8000)")
    parser.add_argument("--replicas", type=int, default=1, help="processes of the server (default: 1)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round (default: 1)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that medians are taken of (default: 7)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    passages = synthetic_passages(arguments.passages, seed=1)
    queries = draw_queries(passages, 1024, seed=1)
    claims = []
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder, "index")
        build_index(passages, index, sources=["benchmark"])
        with serving(index, arguments.replicas) as address:
            sides: list[IndexRetriever] = [open_retriever(address), BM25Retriever(index)]
            for clients, size in itertools.product(arguments.clients, SIZES):
                batches = [queries[at : at + size] for at in range(0, len(queries), size)]
                rates = [
                    [rate(side, batches, clients, arguments.seconds) for side in sides]
                    for _ in range(arguments.rounds + 1)
                ]
                served, alone = (statistics.median(column) for column in zip(*rates[1:], strict=True))
                claims.append(Claim(f"{clients} clients, {size} at a time", served, alone, "queries/s", least=GOAL))
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
