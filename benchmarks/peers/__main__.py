"""The time, CPU and memory of a decomposed question, beside two other frameworks.

The same 32 questions over the same passages, BM25 and a stub LM of 200 ms a call:

typedrag      TypedRAG as published: seven calls, of which three wait for one another
llama_index   LlamaIndex's SubQuestionQueryEngine: the same seven calls
haystack      a Haystack pipeline that decomposes: three calls, each of which waits for the one before

    python -m venv LLAMA
    LLAMA/bin/pip install llama-index-core llama-index-llms-openai-like llama-index-retrievers-bm25
    python -m venv HAY && HAY/bin/pip install haystack-ai
    python -m benchmarks.peers --llama-index LLAMA/bin/python --haystack HAY/bin/python --passages PASSAGES.jsonl

Each runs in a process of its own, in which all questions are asked one by one and at once before they are measured.
The goal is to need at most what the better of the other two needs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claims import Claim, report
from benchmarks.stub_server import stub_server
from typedrag.cli.terminal import run
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import build_index, read_passages

DELAY = 0.2
Figures = dict[str, dict[str, float]]
MEASURES = (("alone", "seconds", "s"), ("alone", "cpu_ms", "ms"), ("at_once", "seconds", "s"),
            ("at_once", "cpu_ms", "ms"), ("at_once", "peak_mb", "MB"))  # fmt: skip


def ask(python: Path, system: str, *arguments: str) -> Figures:
    """The figures of a system whose packages a Python has."""
    command = [str(python), "-m", f"benchmarks.peers.{system}_questions", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{system}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    print(f"{system:12} {figures['alone']['lm_calls']:.0f} LM calls  {figures}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-index", type=Path, metavar="PYTHON", required=True)
    parser.add_argument("--haystack", type=Path, metavar="PYTHON", required=True)
    parser.add_argument("--passages", type=Path, default=PASSAGES, metavar="JSONL", help="default: the sample corpus")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stub_server(delay=DELAY) as stub:
        index = Path(folder, "index")
        build_index(read_passages([arguments.passages]), index, sources=[str(arguments.passages)])
        common = (str(arguments.passages), stub.api_base)
        ours = ask(Path(sys.executable), "typedrag", *common, str(index))
        others = [ask(arguments.llama_index, "llama_index", *common), ask(arguments.haystack, "haystack", *common)]
    claims = [
        Claim(f"{state}: {name}", ours[state][name], min(other[state][name] for other in others), unit, most=1.0)
        for state, name, unit in MEASURES
    ]
    sys.exit(report(claims, check=arguments.check))


if __name__ == "__main__":
    run(main)
