"""The CPU time that typedrag takes before it is ready.

CPU seconds, user and system, of a child process and its own children: `typedrag --help`,
`import typedrag`, a first search of the sample index, and a first answer (imports, Java, the index, a program, one
question to a stub server that replies at once), beside `import dspy`. Median of several runs after a first one, which
warms the disk and leaves the archive of Java's classes.

    python -m benchmarks.startup --check
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.claims import Claim, report
from benchmarks.stub_server import MODEL, stub_server

FIRST_SEARCH = """
from typedrag import BM25Retriever
from typedrag.retrieval.opening import default_index
assert BM25Retriever(default_index()).search(["How do vaccines protect the body against disease?"], 5)[0]
"""
FIRST_ANSWER = """
import sys
from typedrag import BM25Retriever, TypedRAG, open_lm, use_lm
from typedrag.retrieval.opening import default_index
program = TypedRAG(BM25Retriever(default_index()))
with use_lm(open_lm(f"vllm:{sys.argv[1]}", api_base=sys.argv[2], cache=False)):
    assert program(question="How do vaccines protect the body against disease?").citations
"""


def cpu_seconds(command: Sequence[str], runs: int) -> float:
    """Median CPU seconds of a command."""
    return statistics.median([_run(command) for _ in range(runs + 1)][1:])


def _run(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs that a median is taken of (default: 5)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    python = [sys.executable, "-c"]
    with stub_server(delay=0) as server:
        commands = {
            "typedrag --help": ([sys.executable, "-m", "typedrag", "--help"], 0.5),
            "import typedrag": ([*python, "import typedrag"], 0.3),
            "first search": ([*python, FIRST_SEARCH], 1.5),
            "first answer": ([*python, FIRST_ANSWER, MODEL, server.api_base], 3.0),
        }
        dspy = cpu_seconds([*python, "import dspy"], arguments.runs)
        claims = [
            Claim(what, cpu_seconds(command, arguments.runs), dspy, "CPU s", limit=goal)
            for what, (command, goal) in commands.items()
        ]
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    main()
