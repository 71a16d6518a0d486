"""The load that `typedrag evaluate` puts on an LM server, and the cost of tracking and tracing.

questions per hour   Questions per hour of an evaluation, beside the server's rate for bare HTTP requests with the
                     same prompts, as many at once. The prompts are recorded in a first evaluation, which
                     also warms the server's prefix cache for both sides.
tracked              Questions per hour of an evaluation that reports to MLflow, beside one that does not.
traced               The same, with a span for each call of a module, an adapter or an LM, beside an
                     evaluation that is tracked and not traced.

All sides take turns for several rounds; medians are shown. By default a stub server
(`benchmarks/stub_server.py`) takes 1 s for each of 16 calls at once, which is fast for an LM that writes
a paragraph, and the questions are those of the sample corpus in several wordings. --lm and --api-base
name a real server, --dataset, --path and --index other questions.

    python -m benchmarks.evaluation --check
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy
import httpx
from dspy.utils.callback import BaseCallback

from benchmarks.claims import Claim, report
from benchmarks.stub_server import MODEL, stub_server
from typedrag.cli.terminal import run
from typedrag.datasets import sample_questions
from typedrag.experiments import read_config, run_evaluation
from typedrag.experiments.evaluate import Evaluated
from typedrag.lms.lm import open_lm

DELAY = 1.0
QUESTIONS = 96
BUSY = 0.9
TRACING = 0.95
METRICS = "relevance,faithfulness"


class Recorder(BaseCallback):
    """Collects the bodies of the LMs' requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        settings = {name: instance.kwargs[name] for name in ("temperature", "max_tokens")}
        body = {"model": instance.model.partition("/")[2], "messages": inputs["messages"], **settings}
        if (model := (inputs.get("kwargs") or {}).get("response_format")) is not None:
            schema = {"name": model.__name__, "schema": model.model_json_schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        self.bodies.append(body)


@dataclass
class Bench:
    """Evaluations of the same questions, each in a folder of its own.

    Attributes:
        values: The values of the configuration.
        folder: The folder of all output.
    """

    values: dict[str, Any]
    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def evaluate(self, **tracking: bool) -> float:
        """The seconds of an evaluation; none of its judgments are kept from before."""
        out = self.folder / f"evaluation-{next(self._numbers)}" / "run"
        where = {"uri": f"sqlite:///{self.folder / 'mlflow.db'}", **tracking}
        config = read_config(None, {**self.values, "tracking": where})
        start = time.perf_counter()
        [evaluated] = run_evaluation(config, out)
        seconds = time.perf_counter() - start
        _check(evaluated)
        return seconds


def _check(evaluated: Evaluated) -> None:
    overall = evaluated.summary.overall
    failed = overall.failed + sum(metric.failed for metric in overall.metrics.values())
    if evaluated.stopped or failed:
        print(f"{evaluated.stopped or 'finished'}; {failed} answers and judgments failed", file=sys.stderr)
    if evaluated.stopped:
        raise SystemExit(1)


def bare_seconds(bodies: list[dict[str, Any]], api_base: str, key: str, concurrency: int) -> float:
    """The seconds that the server takes for these requests, in their order, this many at once."""
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    with httpx.Client(timeout=600, limits=limits, headers={"Authorization": f"Bearer {key}"}) as client:
        client.get(f"{api_base}/models")

        def send(body: dict[str, Any]) -> None:
            client.post(f"{api_base}/chat/completions", json=body).raise_for_status()

        start = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            list(pool.map(send, bodies))
        return time.perf_counter() - start


def measure(bench: Bench, bare: Callable[[list[dict[str, Any]]], float], questions: int, runs: int) -> Iterator[Claim]:
    """The claims of the module's docstring."""
    recorder = Recorder()
    with dspy.context(callbacks=[recorder]):
        bench.evaluate(enabled=False)
    bench.evaluate(enabled=True, tracing=True)  # makes MLflow's tables
    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(recorder.bodies),
        "plain": lambda: bench.evaluate(enabled=False),
        "tracked": lambda: bench.evaluate(enabled=True),
        "traced": lambda: bench.evaluate(enabled=True, tracing=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            seconds[name].append(way())
    an_hour = {name: questions * 3600 / statistics.median(times) for name, times in seconds.items()}
    what = f"{questions} questions, {len(recorder.bodies)} calls"
    unit = "questions/h"
    yield Claim(f"{what}: over bare requests", an_hour["plain"], an_hour["bare"], unit, least=BUSY)
    yield Claim(f"{what}: tracked over not", an_hour["tracked"], an_hour["plain"], unit)
    yield Claim(f"{what}: traced over tracked", an_hour["traced"], an_hour["tracked"], unit, least=TRACING)


def write_questions(file: Path, count: int) -> None:
    """Write the sample's questions to a file, each in as many wordings as needed."""
    samples = sample_questions()
    rows = (
        {
            "id": str(n),
            "question": f"{samples[n % len(samples)].question[:-1]}, said for the {n // len(samples) + 1}. time?",
        }
        for n in range(count)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", help="LM and scorer (default: the stub)")
    parser.add_argument("--api-base", help="address of its server")
    parser.add_argument("--program", default="typed_rag", help="default: typed_rag")
    parser.add_argument("--dataset", help="default: questions of the sample corpus")
    parser.add_argument("--path", type=Path, help="of the dataset")
    parser.add_argument("--index", type=Path, help="default: as for typedrag ask")
    parser.add_argument("--metric", default=METRICS, help=f"default: {METRICS}")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help=f"default: {QUESTIONS}")
    parser.add_argument("--concurrency", type=int, default=16, help="calls at once (default: 16)")
    parser.add_argument("--threads", type=int, help="questions and judgments at once (default: as typedrag evaluate)")
    parser.add_argument("--delay", type=float, default=DELAY, help=f"seconds a call of the stub (default: {DELAY})")
    parser.add_argument("--runs", type=int, default=2, help="rounds that medians are taken of (default: 2)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spec, api_base = args.lm, args.api_base
        if spec is None:
            spec = f"vllm:{MODEL}"
            api_base = stack.enter_context(stub_server(delay=args.delay, concurrency=args.concurrency)).api_base
        dataset = {"name": args.dataset, "path": args.path, "limit": args.questions}
        if args.dataset is None:
            write_questions(folder / "questions.jsonl", args.questions)
            dataset = {"name": "file", "path": folder / "questions.jsonl"}
        lm = {"spec": spec, "api_base": api_base}
        values = {
            "programs": [{"program": args.program}],
            "dataset": {name: value for name, value in dataset.items() if value is not None},
            "metrics": args.metric.split(","),
            "lm": lm,
            "scorer": lm,
            "index": args.index,
            "calls_in_flight": args.concurrency,
            "threads": args.threads,
            "caps": {"failures": 1.0},
        }
        opened = open_lm(spec, api_base=api_base)
        base, key = opened.kwargs["api_base"], opened.kwargs.get("api_key") or "EMPTY"
        bench = Bench(values, folder)

        def bare(bodies: list[dict[str, Any]]) -> float:
            return bare_seconds(bodies, base, key, args.concurrency)

        claims = list(measure(bench, bare, args.questions, args.runs))
    sys.exit(report(claims, check=args.check))


if __name__ == "__main__":
    run(main)
