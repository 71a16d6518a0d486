"""The speed of a sweep beside evaluations of the same configurations, and the gain of a second worker.

trials per hour   Those of a sweep over retrieval (numbers of passages and sub-queries, BM25's weights), beside
                  `run_evaluation` of the points that it tried, one after the other, each by itself and on all
                  questions. Also with only replies reused, so that each trial answers all questions.
two workers       Trials per hour of two processes that share a study, beside one; with a knob that changes
                  every prompt, so that there is nothing to reuse. Counted from the first trial's begin on:
                  processes take their time to start.

A stub server (`benchmarks/stub_server.py`) takes 500 ms for each call and serves any number at once; a worker
makes 8 at once. The questions are those of the sample corpus in several wordings.

    python -m benchmarks.sweep --check
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim, report
from benchmarks.evaluation import write_questions
from benchmarks.stub_server import MODEL, stub_server
from typedrag.cli.terminal import run
from typedrag.experiments import run_evaluation
from typedrag.experiments.config import EvaluationConfig
from typedrag.optimizers.sweep import SweepConfig, open_sweep, run_sweep
from typedrag.optimizers.sweep.space import apply_params
from typedrag.optimizers.sweep.study import ENDED

QUESTIONS, TRIALS, DELAY = 24, 16, 0.5
LEAST, LEAST_OF_TWO = 3.0, 1.8
RETRIEVAL = {
    "top_k": [3, 5, 8],
    "score_cutoff": [0.2, 0.4, 0.6],
    "bm25.b": [0.3, 0.4, 0.6],
    "max_sub_queries": [2, 3, 5],
}
"""Knobs that do not change every prompt."""
PROMPTS = {"lm.temperature": [round(n / 100, 2) for n in range(TRIALS)]}
"""A knob that changes the settings of every prompt."""


class Bench:
    """Sweeps over the same questions, each in a folder of its own."""

    def __init__(self, folder: Path, api_base: str, questions: int, trials: int) -> None:
        self.folder = folder
        self.trials = trials
        lm = {"spec": f"vllm:{MODEL}", "api_base": api_base}
        write_questions(folder / "questions.jsonl", 2 * questions)  # half of them are train
        self.values: dict[str, Any] = {
            "program": {"program": "typed_rag"},
            "objectives": ["relevance/grade", "cost/tokens"],
            "metrics": ["relevance"],
            "dataset": {"name": "file", "path": str(folder / "questions.jsonl"), "split": "train"},
            "sampler": {"name": "random"},
            "stop": {"trials": trials},
            "lm": lm,
            "scorer": lm,
            "threads": 8,
            "calls_in_flight": 8,
            "tracking": {"enabled": False},
        }

    def config(self, **changes: Any) -> SweepConfig:
        """The configuration of a sweep."""
        return SweepConfig.model_validate({**self.values, **changes})

    def sweep(self, name: str, **changes: Any) -> float:
        """The seconds of a sweep in this process."""
        start = time.perf_counter()
        run_sweep(self.config(**changes), self.folder / name)
        return time.perf_counter() - start

    def evaluate(self, name: str) -> float:
        """The seconds of evaluating the points of a sweep one after the other, each by itself."""
        config = self.config(knobs=RETRIEVAL)
        with open_sweep(config, self.folder / name) as sweep:
            points = [trial.params for trial in sweep.trials(*ENDED)]
        start = time.perf_counter()
        for number, point in enumerate(points):
            evaluation = EvaluationConfig(
                programs=(apply_params(config.program, point),),
                dataset=config.dataset,
                metrics=config.metrics,
                lm=config.lm,
                scorer=config.scorer,
                threads=config.threads,
                calls_in_flight=config.calls_in_flight,
                tracking=config.tracking,
            )
            # in another one's folder a run would find replies and judgments
            folder = self.folder / f"{name}-bare-{number}" / "run"
            assert len(list(run_evaluation(evaluation, folder))) == 1
        return time.perf_counter() - start

    def workers(self, name: str, number: int) -> float:
        """The seconds from the first trial's begin to the last one's end, by this many processes."""
        changes = {"knobs": PROMPTS, "pruning": {"enabled": False}, "sampler": {"name": "grid"}}
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps({**self.values, **changes}), "utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "typedrag", "sweep", str(file), "--out", str(self.folder / name)]
        processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(number)]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a worker failed")
        with open_sweep(self.config(**changes), self.folder / name) as sweep:
            trials = sweep.trials(*ENDED)
        assert len(trials) == self.trials
        begun = [t.datetime_start.timestamp() for t in trials if t.datetime_start]
        ended = [t.datetime_complete.timestamp() for t in trials if t.datetime_complete]
        # until the last worker has begun, the others work alone
        firsts = sorted(begun)[:number]
        return max(ended) - firsts[-1]


def measure(bench: Bench) -> Iterator[Claim]:
    """The claims of the module's docstring."""
    an_hour = 3600 * bench.trials
    bench.sweep("warm", knobs=RETRIEVAL, stop={"trials": 1})  # opens the index and loads the type classifier
    shutil.rmtree(bench.folder / "warm")
    whole = bench.sweep("whole", knobs=RETRIEVAL)
    reuse = bench.sweep("reuse", knobs=RETRIEVAL, pruning={"enabled": False})
    bare = bench.evaluate("whole")
    yield Claim("reuse and pruning over bare", an_hour / whole, an_hour / bare, "trials/h", least=LEAST)
    yield Claim("reuse alone over bare", an_hour / reuse, an_hour / bare, "trials/h")
    one, two = bench.workers("one", 1), bench.workers("two", 2)
    yield Claim("two workers over one", an_hour / two, an_hour / one, "trials/h", least=LEAST_OF_TWO)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=QUESTIONS, help=f"default: {QUESTIONS}")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"default: {TRIALS}")
    parser.add_argument("--delay", type=float, default=DELAY, help=f"seconds a call of the stub (default: {DELAY})")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stub_server(delay=arguments.delay) as server:
        claims = list(measure(Bench(Path(folder), server.api_base, arguments.questions, arguments.trials)))
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
