"""The time that a list ranker takes for a pool, beside a cross-encoder of the same size (RichRAG, figure 5).

Both have the layout of all-MiniLM-L6-v2 (6 layers, 384 dimensions); the ranker also has a decoder of two
layers. Their weights are random: a cross-encoder need not be at hand, and the time does not
depend on them; --ranker and --cross-encoder name others. Passages are drawn from the sample corpus.
For pools of each size it prints the seconds

list        until a list of 10 is written, beside the cross-encoder's scores for all passages
decoding    of the decoder in this, which writing a list adds, beside the whole
places      for lists of 5, 10 and 20 passages from the largest pool, beside one of one passage

Medians of several rounds in turn after a warm-up. Both models read every passage of a pool with the
question, so on a CPU the seconds of both grow with the pool. The claims are that their ratio does
not grow, and that the decoder's share is small.

    python -m benchmarks.list_ranker --check
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.claims import Claim, report
from benchmarks.retrieval import medians
from typedrag import Passage
from typedrag.cli.terminal import run
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import read_passages
from typedrag.retrieval.list_network import Candidates
from typedrag.retrieval.list_ranker import ListReranker, load_list_ranker, start_list_ranker
from typedrag.retrieval.rerankers import CrossEncoderReranker

SIZES = (10, 20, 50, 100)
K = 10
QUESTION = "What are the causes of this, and what can people do about it?"
GOAL = 1.5
SHARE = 0.15


def random_models(folder: Path, texts: Sequence[str]) -> tuple[str, str]:
    """A list ranker and a cross-encoder of MiniLM's size, with random weights."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    tokenizer = start_list_ranker("scratch", texts=texts).tokenizer
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    BertModel(config).save_pretrained(folder / "start")
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(folder / "cross-encoder")
    for name in ("start", "cross-encoder"):
        tokenizer.save_pretrained(folder / name)
    start_list_ranker(str(folder / "start")).save(folder / "ranker")
    return str(folder / "ranker"), str(folder / "cross-encoder")


def latencies(ranker: ListReranker, cross_encoder: CrossEncoderReranker, rounds: int) -> Iterator[Claim]:
    """Claims for pools of each size, and for lists of each length."""
    loaded = load_list_ranker(Path(ranker.name))
    for size in SIZES:
        pool = drawn(size)
        states = loaded.encode(Candidates(QUESTION, [p.titled for p in pool]))
        ours, theirs, decoding = medians(
            [
                partial(ranker.rerank, QUESTION, pool, K),
                partial(cross_encoder.rerank, QUESTION, pool, K),
                partial(loaded.model.write, states, K),
            ],
            rounds,
        )
        yield Claim(f"list of {K} from {size} passages", ours, theirs, "s", most=GOAL)
        yield Claim(f"decoding over {size} passages", decoding, ours, "s", most=SHARE)
    alone, *others = medians([partial(loaded.model.write, states, k, repeat=True) for k in (1, 5, 10, 20)], rounds)
    for k, seconds in zip((5, 10, 20), others, strict=True):
        yield Claim(f"decoding {k} places over {SIZES[-1]}", seconds, alone, "s")


def drawn(size: int) -> list[Passage]:
    """This number of passages, each with an id of its own."""
    corpus = itertools.cycle(read_passages([PASSAGES]))
    return [Passage(str(n), p.text, p.title) for n, p in enumerate(itertools.islice(corpus, size))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranker", help="folder of a list ranker (default: random weights)")
    parser.add_argument("--cross-encoder", help="folder or hub name (default: random weights)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that medians are taken of (default: 5)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranker, cross_encoder = random_models(Path(folder), [p.text for p in read_passages([PASSAGES])])
        claims = list(
            latencies(
                ListReranker(arguments.ranker or ranker),
                CrossEncoderReranker(arguments.cross_encoder or cross_encoder),
                arguments.rounds,
            )
        )
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
