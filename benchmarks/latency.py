"""The time that typedrag adds to its LM calls.

A stub server (`benchmarks/stub_server.py`) takes 200 ms for each call and returns five sub-queries
or sides wherever a program asks for some. Over the sample corpus, without a reranker and without
DSPy's cache:

one question   Wall time of a question of each type, beside 200 ms times the longest chain of LM
               calls that wait for one another. Median of several runs after a warm-up.
64 at once     Wall time of 64 questions on a server that serves 16 calls at once, beside
               200 ms times the least number of rounds of 16 for the calls it counted. A second row
               compares with the same calls made by bare `dspy.Predict`s in as many threads.
CPU per call   CPU milliseconds of the process for each LM call, beside those of bare
               `dspy.Predict`s with the same signatures and inputs, as many at once. Passages are found
               before, since neither pays for BM25; classification and all bookkeeping count as typedrag's.

    python -m benchmarks.latency --check
"""

from __future__ import annotations

import argparse
import contextvars
import itertools
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from benchmarks.claims import Claim, report
from benchmarks.stub_server import MODEL, StubServer, stub_server
from typedrag import BM25Retriever, Options, TypedRAG, open_lm, use_lm
from typedrag.cli.terminal import run
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage
from typedrag.datasets.sample import SampleQuestion, sample_questions
from typedrag.experiments import AskedQuestion, answer_questions
from typedrag.lms.client import limit_calls_in_flight
from typedrag.retrieval.opening import default_index

DELAY = 0.2
CONCURRENCY = 16
IN_FLIGHT = 2 * CONCURRENCY
"""Twice what the server serves at once, so that a call waits there when a slot becomes free."""
QUESTIONS = 64
GOAL = 1.15
CPU_GOAL = 1.3
PUBLISHED = Options.as_published().model_copy(update={"type_classifier": "linear"})  # that of the hub takes a fetch
OPTIONS = {"defaults": Options(), "published": PUBLISHED}

Call = tuple[type[dspy.Signature], dict[str, Any]]


class _Calls(BaseCallback):
    """Collects the signature and the inputs of each predictor that is called."""

    def __init__(self) -> None:
        self.made: list[Call] = []

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, dspy.Predict):
            self.made.append((instance.signature, inputs["kwargs"]))


class RememberingRetriever:
    """A retriever that searches for the same queries once."""

    def __init__(self, retriever: BM25Retriever) -> None:
        self._retriever = retriever
        self._results: dict[tuple[tuple[str, ...], int], list[list[Passage]]] = {}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        key = (tuple(queries), k)
        if key not in self._results:
            self._results[key] = self._retriever.search(queries, k)
        return self._results[key]

    def __deepcopy__(self, memo: object) -> RememberingRetriever:
        return self


def one_question(retriever: BM25Retriever, server: StubServer, runs: int) -> Iterator[Claim]:
    """A claim for each set of options and question type, measured in turns."""
    first_of_each_type = [q for q in sample_questions() if q.id.endswith("-1")]
    seconds: dict[tuple[str, SampleQuestion], list[float]] = defaultdict(list)
    with asking(server):
        programs = {name: TypedRAG(retriever, options=options) for name, options in OPTIONS.items()}
        for _ in range(runs + 1):
            for case in itertools.product(programs, first_of_each_type):
                name, question = case
                seconds[case].append(timed(partial(answer, programs[name], question)))
    for (name, question), times in seconds.items():
        chain = longest_chain(question.question_type, OPTIONS[name])
        what = f"one question: {question.question_type}, {name} ({chain} in a row)"
        yield Claim(what, statistics.median(times[1:]), chain * DELAY, "s", most=GOAL)


def many_questions(retriever: BM25Retriever, name: str, runs: int) -> Iterator[Claim]:
    """Claims about questions answered at once."""
    program = TypedRAG(retriever, options=OPTIONS[name])
    samples = sample_questions()
    questions = [AskedQuestion(str(i), samples[i % len(samples)].question) for i in range(QUESTIONS)]
    ask_all = partial(answer_all, program, questions, QUESTIONS)
    with stub_server(delay=DELAY, concurrency=CONCURRENCY) as server, asking(server):
        calls = collect_calls(ask_all)
        served = server.calls()
        pairs = [(timed(ask_all), timed(partial(replay, calls, QUESTIONS))) for _ in range(runs)]
    wall, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ideal = math.ceil(served / CONCURRENCY) * DELAY
    yield Claim(f"{QUESTIONS} at once, {name}: over {served} calls", wall, ideal, "s", most=GOAL)
    yield Claim(f"{QUESTIONS} at once, {name}: over bare Predicts", wall, bare, "s")


def cpu_per_call(retriever: BM25Retriever, runs: int) -> Iterator[Claim]:
    """Claims about CPU time, with one LM call at a time and with many."""
    questions = [AskedQuestion(q.id, q.question) for q in sample_questions()]
    with stub_server(delay=0.01) as server, asking(server):
        for how, threads in (("serially", 1), ("concurrently", CONCURRENCY)):
            remembering = RememberingRetriever(retriever)
            program = TypedRAG(remembering, options=PUBLISHED.model_copy(update={"threads": threads}))
            ask_all = partial(answer_all, program, questions, threads)
            calls = collect_calls(ask_all)
            replay_all = partial(replay, calls, 1 if threads == 1 else IN_FLIGHT)
            pairs = [(cpu_ms(ask_all), cpu_ms(replay_all)) for _ in range(runs + 1)][1:]
            ours, bare = (statistics.median(column) / len(calls) for column in zip(*pairs, strict=True))
            yield Claim(f"CPU per call, {how}", ours, bare, "ms", most=CPU_GOAL)


def longest_chain(question_type: QuestionType, options: Options) -> int:
    """The longest chain of a question's LM calls that wait for one another."""
    if question_type is QuestionType.EVIDENCE_BASED:
        return 1
    ways = getattr(options, question_type, None)
    return 3 if ways and ways.combine == "aggregate" else 2


def answer(program: TypedRAG, question: SampleQuestion) -> None:
    """Answer a question; stops the benchmark if it is not answered as its type requires."""
    prediction = program(question=question.question)
    if prediction.fallback or prediction.question_type != question.question_type:
        raise SystemExit(f"'{question.question}' was taken as {prediction.question_type}: {prediction.fallback}")


def answer_all(program: TypedRAG, questions: list[AskedQuestion], threads: int) -> None:
    """Answer questions at once; stops the benchmark if one fails."""
    for outcome in answer_questions(program, questions, threads=threads):
        if outcome.answer is None or outcome.answer.fallback:
            raise SystemExit(f"'{outcome.question.question}': {outcome.error or outcome.answer}")


def collect_calls(function: Callable[[], None]) -> list[Call]:
    """The predictors' calls that a function makes; this also warms up."""
    calls = _Calls()
    with dspy.context(callbacks=[calls]):
        function()
    return calls.made


def replay(calls: list[Call], threads: int) -> None:
    """Make calls with bare predictors."""
    with ThreadPoolExecutor(threads) as pool:
        running = [
            pool.submit(contextvars.copy_context().run, partial(dspy.Predict(signature), **inputs))
            for signature, inputs in calls
        ]
    for future in running:
        future.result()


@contextmanager
def asking(server: StubServer) -> Iterator[None]:
    """Direct the LM calls within to the stub."""
    with use_lm(open_lm(f"vllm:{MODEL}", api_base=server.api_base, cache=False)):
        yield


def timed(function: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def cpu_ms(function: Callable[[], object]) -> float:
    """The milliseconds of CPU time that the process takes for a function."""
    start = time.process_time()
    function()
    return 1000 * (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs that a median is taken of (default: 5)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    limit_calls_in_flight(IN_FLIGHT)
    retriever = BM25Retriever(default_index())
    with stub_server(delay=DELAY) as server:
        claims = list(one_question(retriever, server, arguments.runs))
    for name in OPTIONS:
        claims += many_questions(retriever, name, arguments.runs)
    claims += cpu_per_call(retriever, arguments.runs)
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
