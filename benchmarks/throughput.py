"""The share of a vLLM server's throughput that TypedRAG uses, and of its prompts that the server has read before.

questions per hour   Questions per hour of a program with 16 and with 32 LM calls in flight, beside the server's own
                     rate: the recorded prompts as bare HTTP requests, as many at once. The prompts are recorded in a
                     first pass, which also warms the server's prefix cache for both sides.
cached tokens        Share of the recorded prompts' tokens that the server finds in its prefix cache when they come in
                     their order, 16 at once, to a cache that knows none of them: as they are, and with the question
                     before the passages.
tokens a question    By type, with LM calls.

Questions are those of the sample corpus in several wordings, or lines of --questions-file. The LM is one of vLLM,
which is started if no server is named:

    python -m benchmarks.throughput --lm vllm:MODEL [--api-base URL] --check
"""

import argparse
import re
import statistics
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import httpx

from benchmarks.claims import Claim, report
from benchmarks.evaluation import Recorder, bare_seconds
from benchmarks.latency import timed
from typedrag import BM25Retriever, open_lm, use_lm
from typedrag.cli.terminal import log_to_stderr, run
from typedrag.core.records import Usage
from typedrag.datasets import sample_questions
from typedrag.experiments import AskedQuestion, answer_questions
from typedrag.experiments.loading import program_source
from typedrag.lms.client import limit_calls_in_flight
from typedrag.retrieval.opening import default_index

IN_FLIGHT = (16, 32)
GOAL = 0.9
_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)_total\{.*\} (\S+)$", re.MULTILINE)
_SECTION = re.compile(r"(?=^\[\[ ## \w+ ## \]\]$)", re.MULTILINE)


class Answered(NamedTuple):
    """Questions of one type, and what they took."""

    questions: int
    usage: Usage


class Server(NamedTuple):
    """A vLLM server's address and key."""

    api_base: str
    key: str

    def bare_seconds(self, bodies: list[dict[str, Any]], in_flight: int) -> float:
        """The seconds that it takes for these requests, so many at once."""
        return bare_seconds(bodies, self.api_base, self.key, in_flight)

    def cached_share(self, bodies: list[dict[str, Any]], in_flight: int) -> float:
        """The share of the prompts' tokens that it has in its cache, which knows none of them before."""
        salt = uuid.uuid4().hex
        before = self._counted()
        self.bare_seconds([{**body, "max_tokens": 1, "cache_salt": salt} for body in bodies], in_flight)
        after = self._counted()
        return (after["hits"] - before["hits"]) / (after["queries"] - before["queries"])

    def counts(self) -> bool:
        """True if it counts them."""
        return bool(self._counted())

    def _counted(self) -> dict[str, float]:
        metrics = httpx.get(f"{self.api_base.removesuffix('/v1')}/metrics", timeout=60).text
        counted: dict[str, float] = defaultdict(float)
        for name, value in _COUNTER.findall(metrics):
            counted[name] += float(value)
        return counted


def question_first(body: dict[str, Any]) -> dict[str, Any]:
    """The same request with the question before the other inputs.

    Example:
        >>> prompt = "[[ ## passages ## ]]\\nHot.\\n\\n[[ ## question ## ]]\\nWhy?\\n\\n"
        >>> question_first({"messages": [{"role": "user", "content": prompt}]})["messages"][0]["content"]
        '[[ ## question ## ]]\\nWhy?\\n\\n[[ ## passages ## ]]\\nHot.\\n\\n'
    """
    moved = deepcopy(body)
    for message in moved["messages"]:
        if message["role"] == "user":
            sections = _SECTION.split(message["content"])
            message["content"] = "".join(sorted(sections, key=lambda text: not text.startswith("[[ ## question ## ]]")))
    return moved


def answer_all(program: dspy.Module, questions: list[AskedQuestion], threads: int) -> dict[str, Answered]:
    """Answer questions, and return what they took by type; those that fail are reported."""
    by_type: dict[str, Answered] = {}
    failed = 0
    for outcome in answer_questions(program, questions, threads=threads, max_failures=1.0):
        name = str(outcome.answer.question_type) if outcome.answer else "failed"
        failed += outcome.answer is None
        so_far = by_type.get(name, Answered(0, Usage()))
        by_type[name] = Answered(so_far.questions + 1, so_far.usage + outcome.spent.usage)
    if failed:
        print(f"{failed} questions failed", file=sys.stderr)
    return by_type


def measure(
    program: dspy.Module, questions: list[AskedQuestion], bodies: list[dict[str, Any]], server: Server, runs: int
) -> Iterator[Claim]:
    """The claims about questions per hour."""
    for in_flight in IN_FLIGHT:
        limit_calls_in_flight(in_flight)
        ours, bare = [], []
        for _ in range(runs):
            bare.append(server.bare_seconds(bodies, in_flight))
            ours.append(timed(partial(answer_all, program, questions, in_flight)))
        measured, baseline = (len(questions) * 3600 / statistics.median(seconds) for seconds in (ours, bare))
        what = f"{in_flight} in flight: {len(questions)} questions, {len(bodies)} calls"
        yield Claim(what, measured, baseline, "questions/h", least=GOAL)


def print_shares(server: Server, bodies: list[dict[str, Any]]) -> None:
    """Print the shares of cached tokens; none of a server that has no metrics of vLLM."""
    print()
    if not server.counts():
        print("cached tokens: the server does not tell")
        return
    for name, prompts in (("as they are", bodies), ("question first", [question_first(body) for body in bodies])):
        share = server.cached_share(prompts, IN_FLIGHT[0])
        print(f"cached tokens of {len(prompts)} prompts, {name}: {share:.3f}")


def print_tokens(by_type: dict[str, Answered]) -> None:
    """Print what a question of each type takes."""
    print("\ntype            questions  LM calls  tokens read  tokens written   (a question)")
    for name, (questions, usage) in sorted(by_type.items()):
        calls, read, written = (n / questions for n in (usage.lm_calls, usage.prompt_tokens, usage.completion_tokens))
        print(f"{name:15} {questions:9}  {calls:8.1f}  {read:11,.0f}  {written:14,.0f}")


def asked(file: Path | None, count: int) -> list[AskedQuestion]:
    """The questions."""
    if file:
        lines = [line for line in file.read_text("utf-8").splitlines() if line.strip()][:count]
    else:
        samples = sample_questions()
        number = range(count)
        lines = [f"{samples[n % 24].question[:-1]}{', again' * (n // len(samples))}?" for n in number]
    return [AskedQuestion(str(number), line) for number, line in enumerate(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", required=True, help="vllm:MODEL")
    parser.add_argument("--api-base", help="address of its server (default: as typedrag ask)")
    parser.add_argument("--program", default="typed_rag", help="default: typed_rag")
    parser.add_argument("--index", type=Path, help="default: as for typedrag ask")
    parser.add_argument("--questions", type=int, default=96, help="default: 96")
    parser.add_argument("--questions-file", type=Path, help="a question a line")
    parser.add_argument("--max-tokens", type=int, default=512, help="most tokens of a reply (default: 512)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a call (default: 600)")
    parser.add_argument("--runs", type=int, default=2, help="rounds that medians are taken of (default: 2)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    args = parser.parse_args()
    log_to_stderr(verbose=False)
    lm = open_lm(args.lm, api_base=args.api_base, cache=False, max_tokens=args.max_tokens, timeout=args.timeout)
    server = Server(lm.kwargs["api_base"], lm.kwargs["api_key"])
    source = program_source(args.program)
    options = source.options(overrides={})
    program = source.build(BM25Retriever(args.index or default_index()), None, options)
    questions = asked(args.questions_file, args.questions)
    recorder = Recorder()
    with use_lm(lm):
        limit_calls_in_flight(IN_FLIGHT[0])
        with dspy.context(callbacks=[recorder]):
            by_type = answer_all(program, questions, IN_FLIGHT[0])
        print_tokens(by_type)
        claims = list(measure(program, questions, recorder.bodies, server, args.runs))
        print_shares(server, recorder.bodies)  # last: it fills the server's cache with prompts of its own
        print()
    sys.exit(report(claims, check=args.check))


if __name__ == "__main__":
    run(main)
