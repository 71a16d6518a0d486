"""Train RichRAG's list ranker on ANTIQUE's train split, and write its results on the test split as a page.

    typedrag models fetch all-minilm-l6-v2
    ANTIQUE=FILE ANTIQUE_INDEX=INDEX python scripts/list_ranker.py --out rankers

Pools of BM25's candidates and the graded passages; silver lists from --start, then preferences, as in
configs/list-ranker-*.yaml, each keeping the weights that are best on the validation split; then nDCG@10, MAP
and NCOM on the test split, beside BM25's order and the cosine of MiniLM. Finished work is kept: after a kill, or
after --minutes, the same command continues.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path

from pages import CONFIGS

from typedrag.cli.terminal import OnProgress, RunsProgress, counting, run, say
from typedrag.datasets import load_dataset
from typedrag.datasets.richrag import Pool, read_pools, write_pools
from typedrag.experiments.config_file import read_into
from typedrag.experiments.formats import format_estimate, format_p, markdown_table
from typedrag.files.text_files import write_text
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.optimizers.list_ranker.measures import RankerReport, RankerScores, compare_rankers, evaluate_rankers
from typedrag.optimizers.list_ranker.pools import find_scale, pools_from_labels
from typedrag.optimizers.list_ranker.run import TrainedRanker, TrainingProgress, train_ranker
from typedrag.optimizers.trainer import StepLoss
from typedrag.retrieval import BM25Retriever, open_reranker
from typedrag.retrieval.opening import default_index

DEPTH = 50
"""Passages of a pool that BM25 finds."""
SPLITS = ("train", "validation", "test")
STAGES = {"sft": "silver lists", "dpo": "then preferences"}
BASELINES = {"none": "BM25's order", "bi-encoder": "MiniLM cosine"}
MEASURES = {"ndcg": "nDCG@10", "map": "MAP", "ncom": "NCOM@10"}


def main() -> None:
    """Parse, make pools, train twice, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of pools and trainings")
    parser.add_argument("--page", type=Path, default=Path("docs/list-ranker.md"), help="Markdown file to write")
    parser.add_argument("--start", help="encoder or encoder-decoder; default: that of the configuration")
    parser.add_argument("--limit", type=int, help="pools a split, for a quick look; default: all")
    parser.add_argument("--minutes", type=float, help="of each training in this session")
    arguments = parser.parse_args()
    files = {split: arguments.out / f"pools-{split}.jsonl" for split in SPLITS}
    make_pools(files, arguments.limit)
    trained = trainings(arguments.out, files, arguments.start, arguments.minutes)
    rankers = {name: f"list:{trained[stage].folder}" for stage, name in STAGES.items()}
    report = measured(read_pools(files["test"]), rankers)
    arguments.page.write_text(page(report, trained, files), "utf-8")


def make_pools(files: dict[str, Path], limit: int | None) -> None:
    """Make a file of pools for each split, unless an earlier session has made it from the same data.

    Raises:
        SystemExit: If the folder's pools come from other questions, passages or limits.
    """
    dataset = load_dataset("antique", Path(os.environ["ANTIQUE"]) if "ANTIQUE" in os.environ else None)
    retriever = BM25Retriever(os.environ.get("ANTIQUE_INDEX") or default_index())
    origin = {"dataset": dataset.fingerprint, **retriever.identity, "depth": DEPTH, "limit": limit}
    out = files["train"].parent
    out.mkdir(parents=True, exist_ok=True)
    made_of = out / "pools.json"
    if not made_of.is_file():
        write_text(made_of, json.dumps(origin, indent=1) + "\n")
    elif json.loads(made_of.read_text("utf-8")) != origin:
        raise SystemExit(f"{out} holds pools of other data. Name another --out")
    for split, file in files.items():
        if not file.is_file():
            examples = dataset.split(split)[:limit]
            pools = pools_from_labels(examples, retriever, find_scale(dataset.examples), depth=DEPTH)
            say(f"{split}: {write_pools(file, pools)} pools of {len(examples)} questions")


def trainings(out: Path, files: dict[str, Path], start: str | None, minutes: float | None) -> dict[str, TrainedRanker]:
    """Train both stages, each from the result of the one before."""
    done: dict[str, TrainedRanker] = {}
    flags = {"data": files["train"], "validation": files["validation"], "training": {"minutes": minutes}}
    for stage in STAGES:
        file = CONFIGS / f"list-ranker-{stage}.yaml"
        config = read_into(RankerTrainConfig, "ranker train", file, {**flags, "start": start})
        with counting(f"{stage} steps") as show, RunsProgress(label="{}") as shown:
            watching = TrainingProgress(listener=shown.show, step=partial(show_step, show), notice=say)
            done[stage] = train_ranker(config, out / stage, resume=True, watching=watching)
        if done[stage].outcome.stopped:
            raise SystemExit(f"{stage}: out of time; the same command continues")
        start = str(done[stage].folder)
    return done


def show_step(show: OnProgress, loss: StepLoss) -> None:
    """Show the progress of a training."""
    show(loss.step, f"of {loss.steps}, loss {loss.loss:.3f}")


def measured(pools: list[Pool], rankers: dict[str, str]) -> RankerReport:
    """Measure the trained rankers and the baselines on the test pools."""
    specs = rankers | {name: spec for spec, name in BASELINES.items()}
    names = list(specs)
    with counting("pools", len(pools) * len(names)) as show:
        return evaluate_rankers(
            pools,
            {name: open_reranker(spec) for name, spec in specs.items()},
            on_progress=lambda name, n: show(names.index(name) * len(pools) + n, name),
        )


def page(report: RankerReport, trained: dict[str, TrainedRanker], files: dict[str, Path]) -> str:
    """The page of the results."""
    counts = ", ".join(f"{len(read_pools(file))} for {split}" for split, file in files.items())
    command = shlex.join(["python", "scripts/list_ranker.py", *sys.argv[1:]])
    lines = [
        "# What the list ranker is worth",
        "",
        f"Made by `{command}` on {date.today()}; nothing is edited by hand. Pools of ANTIQUE: {counts}. A pool holds "
        f"BM25's first {DEPTH} passages and those graded passages that are not among them; what nobody graded counts "
        "as worth nothing. MAP counts labels 3 and 4 as relevant. Means with 95% bootstrap intervals.",
        "",
        *markdown_table(
            ("ranker", "n", *MEASURES.values(), "seconds a pool"),
            (
                (s.ranker, str(report.pools), *(format_estimate(s.means.get(m)) for m in MEASURES), f"{s.seconds:.3f}")
                for s in report.scores
            ),
        ),
        "Differences with 95% intervals (paired bootstrap) and p of the paired permutation test, corrected for all "
        "tests of a ranker.",
        "",
        *markdown_table(("ranker", "against", "measure", "n", "difference", "corrected p"), compared(report.scores)),
        "## Training",
        "",
        *markdown_table(
            ("stage", "examples", "steps", "loss at first", "loss at last", "validation by step"),
            training_rows(trained),
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def compared(scores: tuple[RankerScores, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the comparison of each trained ranker with each baseline."""
    baselines = [s for s in scores if s.ranker in BASELINES.values()]
    for ranker in (s for s in scores if s.ranker in STAGES.values()):
        for c in compare_rankers([ranker, *baselines]):
            difference = format_estimate(c.difference, signed=True)
            yield ranker.ranker, c.baseline, MEASURES[c.measure], str(c.difference.n), difference, format_p(c.p)


def training_rows(trained: dict[str, TrainedRanker]) -> Iterator[tuple[str, ...]]:
    """Yield the table rows of the trainings; losses are means over a tenth of the steps."""
    for stage, result in trained.items():
        losses = result.outcome.losses
        tenth = max(1, len(losses) // 10)
        first, last = (sum(part) / len(part) for part in (losses[:tenth], losses[-tenth:]))
        by_step = ", ".join(f"{step}: {value:.3f}" for step, value in result.outcome.validated.items())
        yield STAGES[stage], str(result.examples), str(len(losses)), f"{first:.3f}", f"{last:.3f}", by_step


if __name__ == "__main__":
    run(main)
