"""An index in Milvus beside one in a folder, of the same passages and asked the same questions.

For each way of searching that both have (BM25, dense, hybrid): queries a second that 1, 8 and 64 threads get, one query
at a time and 16, in turns for several rounds after a warm-up, of which medians are shown; then how good the passages
are by people's labels (nDCG@10), and how many of the first ten both have. Milvus runs where its address says: in a
process of its own at least, which the folder's index is not. Both are built before:

    typedrag index build antique.jsonl.gz --out my-index --dense all-minilm-l6-v2
    typedrag index build antique.jsonl.gz --out milvus:http://localhost:19530/antique --dense all-minilm-l6-v2
    python -m benchmarks.milvus antique.json.gz my-index milvus:http://localhost:19530/antique
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import dspy

from benchmarks.claims import Claim, report
from benchmarks.index_server import SIZES, rate
from typedrag.cli.terminal import run
from typedrag.core.records import Passage
from typedrag.datasets import load_dataset
from typedrag.metrics.ranking import ranking_measures
from typedrag.retrieval import IndexRetriever, Retriever, open_retriever, retriever_parts

DEPTH = 10


def ways(folder: IndexRetriever, milvus: IndexRetriever) -> dict[str, tuple[Retriever, Retriever]]:
    """The two retrievers of each way of searching."""
    (mine, my_dense), (theirs, their_dense) = retriever_parts(milvus), retriever_parts(folder)
    sides: dict[str, tuple[Retriever, Retriever]] = {}
    if mine and theirs:
        sides["bm25"] = mine, theirs
    if my_dense and their_dense:
        sides["dense"] = my_dense, their_dense
    return sides | ({"hybrid": (milvus, folder)} if len(sides) == 2 else {})


def ndcg(rankings: Sequence[Sequence[Passage]], examples: Sequence[dspy.Example]) -> float:
    """The mean nDCG@10 by the labels of a question's references, 1 (irrelevant) to 4."""

    def measured(ranking: Sequence[Passage], example: dspy.Example) -> float:
        labels = {" ".join(r.text.split()): r.label - 1 for r in example.references}
        return ranking_measures([" ".join(p.text.split()) for p in ranking], labels, DEPTH)["ndcg"]

    return fmean(measured(ranking, example) for ranking, example in zip(rankings, examples, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="ANTIQUE, with labels")
    parser.add_argument("index", type=Path)
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that medians are taken of (default: 5)")
    arguments = parser.parse_args()
    examples = load_dataset("antique", arguments.dataset).examples
    questions = [example.question for example in examples]
    opened = open_retriever("auto", arguments.index), open_retriever(arguments.address)
    if opened[0].identity["index"] != opened[1].identity["index"]:
        raise SystemExit("the two indexes hold different passages")
    claims = []
    for name, sides in ways(*opened).items():
        rankings = [side.search(questions, DEPTH) for side in sides]
        shared = fmean(
            len({p.id for p in some} & {p.id for p in others}) / DEPTH for some, others in zip(*rankings, strict=True)
        )
        mine, theirs = (ndcg(side, examples) for side in rankings)
        claims.append(Claim(f"{name}: nDCG@{DEPTH} ({shared:.0%} of passages shared)", mine, theirs, ""))
        for clients, size in itertools.product(arguments.clients, SIZES):
            batches = [questions[at : at + size] for at in range(0, len(questions), size)]
            rates = [
                [rate(side, batches, clients, arguments.seconds) for side in sides] for _ in range(arguments.rounds + 1)
            ]
            mine, theirs = (statistics.median(column) for column in zip(*rates[1:], strict=True))
            claims.append(Claim(f"{name}: {clients} clients, {size} at a time", mine, theirs, "queries/s"))
    sys.exit(report(claims, check=False))


if __name__ == "__main__":
    run(main)
