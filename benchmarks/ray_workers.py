"""The rate of 1, 2 and 4 workers of a Ray on this machine, and what the loss of one costs.

workers    Questions per hour of 2 and of 4 workers after their first ones, beside as many times those of one: the share
           of the ideal. Each worker has 4 questions under way, and as many LM calls in flight.
recovery   One of 4 workers is killed while all are at work: seconds until the questions that were under way then are
           all answered, and until another worker has built its program.

A stub server (`benchmarks/stub_server.py`) takes 2 s for each call, so that the processors are not the limit, and 0.5 s
where recovery is measured; the questions are those of the sample corpus in several wordings, answered by `typed_rag`.

    python -m benchmarks.ray_workers --check
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dspy
import psutil

from benchmarks.claims import Claim, report
from benchmarks.stub_server import MODEL, stub_server
from typedrag.cli.terminal import run
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.datasets import sample_questions
from typedrag.experiments import AskedQuestion, MetricResult, Outcome, answer_questions
from typedrag.experiments.config import DatasetConfig, EvaluationConfig, LMConfig, ProgramConfig
from typedrag.experiments.executors import ProgramJob
from typedrag.experiments.ray_pool import JobSpec, RayPool, connect
from typedrag.experiments.resources import Resources

WORKERS, EACH, QUESTIONS, DELAY = (1, 2, 4), 4, 16, 2.0
QUICK = 0.5
LEAST, LIMIT = 0.85, 10.0


class Watched:
    """An executor whose questions under way are known."""

    def __init__(self, pool: RayPool) -> None:
        self._pool = pool
        self.answered = 0
        self.under_way: set[str] = set()

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        self.under_way.add(example.question)
        answer = self._pool.answer(example, question_type)
        self.under_way.discard(example.question)
        self.answered += 1
        return answer

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        return self._pool.measure(metric, example, answer)


@contextmanager
def begun(work: JobSpec, workers: int) -> Iterator[RayPool]:
    """Workers that have answered their first questions."""
    with closing(RayPool(work, workers, threads=EACH * workers, calls=EACH * workers)) as pool:
        wait_for(lambda: pool.ready == workers)
        answer_questions(pool, asked(EACH, workers), threads=EACH * workers)  # loads what loads when it is needed
        yield pool


def wait_for(condition: Callable[[], bool]) -> float:
    """The seconds until something is so."""
    start = time.perf_counter()
    while not condition():
        time.sleep(0.02)
    return time.perf_counter() - start


def asked(questions: int, times: int) -> list[AskedQuestion]:
    """A number of questions, each in some wordings: one mix of types for any number of workers."""
    samples = sample_questions()[:questions]
    texts = (f"{sample.question[:-1]}, said for the {n + 1}. time?" for n in range(times) for sample in samples)
    return [AskedQuestion(str(n), text) for n, text in enumerate(texts)]


def rate(work: JobSpec, workers: int, questions: int) -> float:
    """Questions per hour of so many workers, each of which has so many to answer."""
    with begun(work, workers) as pool:
        start = time.perf_counter()
        outcomes = answer_questions(pool, asked(questions, workers), threads=EACH * workers)
        assert all(outcome.answer for outcome in outcomes)
        return len(outcomes) * 3600 / (time.perf_counter() - start)


def recovery(work: JobSpec, workers: int, questions: int) -> tuple[float, float]:
    """The seconds until what was under way when a worker was killed is answered, and until there are as many again."""
    with begun(work, workers) as pool:
        watched = Watched(pool)
        todo = asked(questions, workers)
        outcomes: list[Outcome] = []
        asking = threading.Thread(
            target=lambda: outcomes.extend(answer_questions(watched, todo, threads=EACH * workers))
        )
        asking.start()
        wait_for(lambda: watched.answered > EACH * workers)
        under_way = set(watched.under_way)
        children = psutil.Process(os.getpid()).children(recursive=True)
        next(p for p in children if p.name().startswith("ray::Worker")).kill()
        start = time.perf_counter()
        wait_for(lambda: not under_way & watched.under_way)
        answered = time.perf_counter() - start
        wait_for(lambda: pool.ready == workers)
        again = time.perf_counter() - start
        asking.join()
        assert sorted(outcome.index for outcome in outcomes) == list(range(len(todo)))
        return answered, again


def measure(delay: float, questions: int) -> Iterator[Claim]:
    """The claims of the module's docstring; the baseline of recovery is a question's two calls."""
    with stub_server(delay=delay) as server:
        work = work_at(server.api_base)
        one = rate(work, 1, questions)
        for workers in WORKERS[1:]:
            yield Claim(f"{workers} workers", rate(work, workers, questions), workers * one, "questions/h", least=LEAST)
    with stub_server(delay=QUICK) as server:
        answered, again = recovery(work_at(server.api_base), WORKERS[-1], questions)
        yield Claim("what a killed worker had under way is answered", answered, 2 * QUICK, "s", limit=LIMIT)
        yield Claim("another worker has begun", again, 2 * QUICK, "s")


def work_at(api_base: str) -> JobSpec:
    """The work of the workers, with an LM at this address."""
    program, lm = ProgramConfig(program="typed_rag"), LMConfig(spec=f"vllm:{MODEL}", api_base=api_base)
    data = DatasetConfig(name="questions")
    config = EvaluationConfig(programs=(program,), lm=lm, dataset=data, metrics=())
    return ProgramJob.of(Resources(config, Path()), program)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=QUESTIONS, help=f"of each worker (default: {QUESTIONS})")
    parser.add_argument("--delay", type=float, default=DELAY, help=f"seconds a call of the stub (default: {DELAY})")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    most = WORKERS[-1]
    with connect("ray", most, threads=EACH * most, calls=EACH * most):
        claims = list(measure(arguments.delay, arguments.questions))
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
