"""The quality of gates, which tell whether a retrieved passage is of use.

The first passages that a retriever finds for the questions of some sets are judged by each make of gate, beside three
baselines: all pass, the option score_cutoff at 0.4, and a cosine of MiniLM of at least 0.4. A set is named by its
dataset, file and index (--on NAME FILE INDEX). A passage is good
- if its label says so, in a set with labelled passages (ANTIQUE, TREC-DL-NF, the sample); one without a label is bad;
 - in other sets, such as Wiki-NFQA, if it holds a gold answer of two words or more; only questions with a good passage
 count. This label is crude: a passage may hold an answer by chance, as is mostly so with one word.

With --off NAME FILE INDEX the index is another collection's, so that no passage is good; with --without NAME FILE
INDEX it is the question's own, less the passages that people labelled for it, which is harder: other passages are on
its topic. A gate should let something pass on the first and nothing on these two. AUC is that of the probability; the
intervals are over questions. ANTIQUE's questions are those of its test split, since --train first fits the weights of
`score` on its train split, to the first ten passages of BM25 and of the dense part.

    python -m benchmarks.relevance_filter --on antique ANTIQUE.json INDEX --on wiki-nfqa FOLDER INDEX
    python -m benchmarks.relevance_filter --on antique ANTIQUE.json INDEX --gates lm cascade --limit 40 --lm vllm:qwen
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from benchmarks.calibration import expected_calibration_error
from typedrag.cli.terminal import run
from typedrag.core.records import Passage, Usage, total_usage
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import text_hash
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.lms.trace import collect_steps, run_concurrently
from typedrag.metrics.estimate import bootstrap_estimate
from typedrag.metrics.overlap import contains
from typedrag.programs import Options
from typedrag.retrieval import open_retriever
from typedrag.retrieval.local_models import LogisticModel
from typedrag.retrieval.relevance_filter import WEIGHTS, Features, build_relevance_filter, compute_features

TRAINING_DEPTH = 10
LABELLED = 300
"""More passages than people labelled for a question."""
CUTOFF = 0.4
COSINE = 0.4
NO_USAGE = Usage()


@dataclass(frozen=True)
class Found:
    """The passages found for a question, with True for each good one."""

    question: str
    passages: Sequence[Passage]
    good: Sequence[bool]


@dataclass(frozen=True)
class Row:
    """The judgments of a gate.

    Attributes:
        name: The name of the gate.
        passed: True for each passage that passes, question by question.
        probabilities: The probability of each passage; None if the gate has none.
        usage: The usage of the LM.
    """

    name: str
    passed: Sequence[Sequence[bool]]
    probabilities: Sequence[Sequence[float]] | None = None
    usage: Usage = NO_USAGE


def found_for(
    examples: Sequence[dspy.Example],
    index: Path,
    retriever: str,
    depth: int,
    *,
    off: bool = False,
    labelled: bool | None = None,
) -> list[Found]:
    """The passages found for questions that have a good one; for all questions if the collection is another's.

    `labelled` keeps those that people labelled for the question, or those that they did not.
    """
    deeper = LABELLED if labelled is False else 0
    rankings = open_retriever(retriever, index).search([e.question for e in examples], depth + deeper)
    if labelled is not None:
        texts = [{" ".join(r.text.split()) for r in e.references} for e in examples]
        ranked = zip(rankings, texts, strict=True)
        rankings = [[p for p in r if (" ".join(p.text.split()) in of) is labelled][:depth] for r, of in ranked]
    pools = [
        Found(e.question, ranking, [not off and is_good(e, p) for p in ranking])
        for e, ranking in zip(examples, rankings, strict=True)
        if ranking
    ]
    counts = off or all("passage_ids" in e for e in examples)
    return [f for f in pools if counts or any(f.good)]


def is_good(example: dspy.Example, passage: Passage) -> bool:
    if "passage_ids" in example:
        return passage.id in example.passage_ids
    long_enough = [answer for answer in example.answers if len(answer.split()) > 1]
    return any(contains(f"{passage.title} {passage.text}", answer) for answer in long_enough)


def train(file: Path, index: Path) -> None:
    """Fit the weights of `score` and write them to the package."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    examples = load_dataset("antique", file).split("train")
    pools = [f for part in ("bm25", "dense") for f in found_for(examples, index, part, TRAINING_DEPTH)]
    rows = np.array([row for f in pools for row in compute_features(f.question, f.passages)])
    good = np.array([g for f in pools for g in f.good])
    fitted = LogisticRegression(C=100).fit(rows, good)
    weights = dict(zip(Features._fields, fitted.coef_[0].round(3).tolist(), strict=True))
    LogisticModel(intercept=round(float(fitted.intercept_[0]), 3), weights=weights).save(WEIGHTS)
    print(f"{WEIGHTS.name}: {len(examples)} questions, {len(good)} passages, {good.mean():.3f} of them good\n")


def baselines(pools: Sequence[Found]) -> Iterator[Row]:
    """The baselines: all passages, and the scores alone."""
    yield Row("none", [[True] * len(f.passages) for f in pools])
    yield Row(f"score_cutoff {CUTOFF}", [[p.score >= CUTOFF * f.passages[0].score for p in f.passages] for f in pools])
    cosines = [[features.cosine for features in compute_features(f.question, f.passages)] for f in pools]
    yield Row(f"cosine {COSINE}", [[c >= COSINE for c in row] for row in cosines], cosines)


def judged(spec: str, pools: Sequence[Found], options: Options, threads: int) -> Row:
    """The judgments of a gate."""
    words, threshold = options.passage_words, options.relevance_threshold
    gate = build_relevance_filter(spec, threshold, passage_words=words, retries=options.retries)
    assert gate is not None
    with collect_steps() as steps:
        judgments = run_concurrently(lambda f: gate.probabilities(f.question, f.passages), pools, threads)
    probabilities = [[1.0 if p is None else p for p in row] for row in judgments]
    passed = [[p >= threshold for p in row] for row in probabilities]
    return Row(spec, passed, None if spec == "lm" else probabilities, total_usage(steps))


def shown(row: Row, pools: Sequence[Found]) -> list[str]:
    """The gate's line of the table."""
    groups = [f.question for f in pools for _ in f.good]
    good = [g for f in pools for g in f.good]
    passed = [p for ps in row.passed for p in ps]

    def of(measure: Callable[..., float], *samples: Sequence[Any]) -> str:
        return str(bootstrap_estimate(measure, *samples, groups=groups, resamples=1000) or "")

    flat = [p for ps in row.probabilities for p in ps] if row.probabilities else []
    calibrated = flat and not row.name.startswith("cosine")
    return [
        row.name,
        of(auc, good, flat) if flat else "",
        of(lambda g, p: float((g == p).mean()), good, passed),
        of(lambda g, p: share(g[p]), good, passed),
        of(lambda g, p: share(p[g]), good, passed),
        of(lambda g, p: share(~p[~g]), good, passed),
        f"{sum(not any(ps) for ps in row.passed)}/{len(pools)}",
        f"{expected_calibration_error(flat, good):.3f}" if calibrated else "",
        f"{row.usage.lm_calls}, {row.usage.tokens}" if row.usage.lm_calls else "",
    ]


def share(values: Any) -> float:
    return float(values.mean()) if len(values) else float("nan")


def auc(good: Any, values: Any) -> float:
    """The share of pairs in which a good passage has a higher value than a bad one."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(good, values)) if 0 < good.sum() < len(good) else float("nan")


HEADER = ["gate", "AUC", "accuracy", "precision", "good kept", "bad dropped", "nothing passes", "calibration error",
          "LM calls, tokens"]  # fmt: skip


def print_table(title: str, pools: Sequence[Found], rows: Sequence[Row]) -> None:
    good = sum(sum(f.good) for f in pools)
    print(f"{title}: {len(pools)} questions, {sum(len(f.good) for f in pools)} passages, {good} of them good\n")
    for line in (HEADER, ["---"] * len(HEADER), *(shown(row, pools) for row in rows)):
        print(f"| {' | '.join(line)} |")
    print(flush=True)


@contextmanager
def lm_of(arguments: argparse.Namespace) -> Iterator[None]:
    replies = arguments.replies
    lm = open_lm(arguments.lm, api_base=arguments.api_base, cache=replies is not None, timeout=arguments.timeout)
    with use_reply_store(replies) if replies else nullcontext(), use_lm(lm):
        yield


def main() -> None:
    """Train if that is asked for, then print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    triple: dict[str, Any] = {"nargs": 3, "action": "append", "default": [], "metavar": ("NAME", "FILE", "INDEX")}
    parser.add_argument("--on", help="a set on the collection that it belongs to", **triple)
    parser.add_argument("--off", help="a set on a collection that holds none of its answers", **triple)
    parser.add_argument("--without", help="a set on its collection without the passages labelled for it", **triple)
    parser.add_argument("--train", nargs=2, type=Path, metavar=("ANTIQUE", "INDEX"), help="fit the weights of score")
    parser.add_argument("--gates", nargs="*", default=["score"], metavar="SPEC", help="see the option relevance")
    parser.add_argument("--threshold", type=float, help="the option relevance_threshold")
    parser.add_argument("--retriever", default="bm25", help="see typedrag ask --help (default: bm25)")
    parser.add_argument("--depth", type=int, default=5, help="passages found for a question (default: 5)")
    parser.add_argument("--labelled-alone", action="store_true", help="leave out passages that nobody has labelled")
    parser.add_argument("--words", type=int, default=200, help="of a passage that an LM sees (default: 200)")
    parser.add_argument("--limit", type=int, help="questions of a set, drawn by hash (default: all)")
    parser.add_argument("--threads", type=int, default=1, help="questions that an LM is asked at once (default: 1)")
    parser.add_argument("--lm", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of the LM's server")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a call may take (default: 600)")
    parser.add_argument("--replies", type=Path, help="file to keep LM replies in")
    arguments = parser.parse_args()
    if arguments.train:
        train(*arguments.train)
    threshold = {} if arguments.threshold is None else {"relevance_threshold": arguments.threshold}
    options = Options(passage_words=arguments.words, **threshold)
    sets = [(kind, *one) for kind in ("on", "off", "without") for one in getattr(arguments, kind)]
    for kind, name, file, index in sets:
        dataset = load_dataset(name, None if name == "sample" else Path(file))
        examples = dataset.split("test") if name == "antique" else dataset.examples
        drawn = sorted(examples, key=lambda e: text_hash(e.id))
        pools = found_for(
            drawn,
            Path(index),
            arguments.retriever,
            arguments.depth,
            off=kind != "on",
            labelled=False if kind == "without" else arguments.labelled_alone or None,
        )[: arguments.limit]
        asks = any(spec.startswith(("lm", "cascade")) for spec in arguments.gates)
        with lm_of(arguments) if asks else nullcontext():
            rows = [*baselines(pools), *(judged(spec, pools, options, arguments.threads) for spec in arguments.gates)]
        where = {"on": "its collection", "off": "another collection", "without": "its collection without its answers"}
        print_table(f"{name} on {where[kind]}, {arguments.retriever}", pools, rows)


if __name__ == "__main__":
    run(main)
