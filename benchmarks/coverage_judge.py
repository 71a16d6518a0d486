"""One call of the coverage judge for many sub-questions, beside one call for each.

The judge is asked about answers with sub-questions that people labelled as covered or not, with different
numbers of sub-questions a call, in any of its ways (--cite). For each number this prints:

labels   The agreement of the verdicts with people's labels: accuracy, precision, recall, F1 and the share of
         pairs in order, with 95 % intervals that resample answers; the share of verdicts that are the same as
         with one call each; the share of invalid verdicts, whose words are not in the answer even when asked
         again; failures, whose replies could not be read.
cost     LM calls, tokens read and written, and wall time, with as many calls under way as there are
         threads. A server that caches the beginning of prompts has already read each answer.

    python -m benchmarks.coverage_judge coverage.jsonl --scorer vllm:qwen
    python -m benchmarks.coverage_judge coverage.jsonl --cite cascade --scorer vllm:qwen --per-call 10
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import get_args

import dspy

from benchmarks.claims import Claim, report
from typedrag.cli.terminal import run
from typedrag.core.errors import StepFailed
from typedrag.datasets import load_dataset
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.trace import run_concurrently
from typedrag.metrics.estimate import binary_agreement, pairwise_order_accuracy
from typedrag.sub_questions.coverage_judge import Cite, Coverage, asks_lm, build_coverage_judge

DATASET = "sub-question-coverage"

Group = Sequence[dspy.Example]
"""Sub-questions on one answer."""


@dataclass(frozen=True)
class Judged:
    """The verdicts with one number of sub-questions a call, and their cost.

    Attributes:
        verdicts: The verdicts in the order of the examples; None for a reply that could not be read.
        calls: The number of LM calls.
        read: The number of tokens read.
        written: The number of tokens written.
        seconds: Wall time.
    """

    verdicts: tuple[Coverage | None, ...]
    calls: int
    read: int
    written: int
    seconds: float


def judge(lm: dspy.LM | None, groups: Sequence[Group], cite: Cite, per_call: int, threads: int) -> Judged:
    """The verdicts on all groups, with their cost."""
    coverage_judge = build_coverage_judge(cite, per_call)

    def verdicts(group: Group) -> Sequence[Coverage | None]:
        try:
            return coverage_judge(group[0].answer, [e.sub_question for e in group]).verdicts
        except StepFailed as error:
            print(f"{per_call} a call: {error}")
            return [None] * len(group)

    before, start = len(lm.history) if lm else 0, time.perf_counter()
    verdicts_by_group = run_concurrently(verdicts, groups, threads)
    seconds = time.perf_counter() - start
    usages = [call["usage"] for call in lm.history[before:]] if lm else []
    return Judged(
        tuple(verdict for group in verdicts_by_group for verdict in group),
        len(usages),
        sum(u.get("prompt_tokens") or 0 for u in usages),
        sum(u.get("completion_tokens") or 0 for u in usages),
        seconds,
    )


def print_labels(examples: Sequence[dspy.Example], judged: dict[int, Judged]) -> None:
    """Print the agreement of verdicts with people's labels, and with the verdicts of one call each."""
    alone = judged[min(judged)]
    for per_call, results in judged.items():
        pairs = [(e, v) for e, v in zip(examples, results.verdicts, strict=True) if v]
        agreement = binary_agreement(
            [e.covered for e, _ in pairs], [v.answered for _, v in pairs], groups=[e.answer for e, _ in pairs]
        )
        ordered = pairwise_order_accuracy(
            [float(v.answered) if v.probability is None else v.probability for _, v in pairs],
            [int(e.covered) for e, _ in pairs],
            groups=[e.answer for e, _ in pairs],
        )
        estimates = {**agreement, **({"ordered": ordered} if ordered else {})}
        cells = [f"{name} {x.value:.3f} ({x.low:.2f} to {x.high:.2f})" for name, x in estimates.items()]
        both = [a.answered == b.answered for a, b in zip(alone.verdicts, results.verdicts, strict=True) if a and b]
        invalid = sum(v.invalid for _, v in pairs) / max(1, len(pairs))
        print(
            f"{per_call} a call: {', '.join(cells)}, as with {min(judged)} a call {sum(both) / max(1, len(both)):.3f}, "
            f"invalid {invalid:.3f}, failed {len(examples) - len(pairs)}"
        )
    covered = [bool(e.covered) for e in examples]
    print(f"always the same: accuracy {max(sum(covered), len(covered) - sum(covered)) / len(covered):.3f}")


def costs(judged: dict[int, Judged]) -> list[Claim]:
    """Claims on the cost of each number of sub-questions a call, beside the smallest number."""
    alone = judged[min(judged)]
    return [
        Claim(f"{per_call} a call: {what}", float(getattr(results, field)), float(getattr(alone, field)), unit)
        for per_call, results in judged.items()
        for what, field, unit in (
            ("LM calls", "calls", ""),
            ("read", "read", "tokens"),
            ("written", "written", "tokens"),
            ("wall time", "seconds", "s"),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"file of the dataset {DATASET}")
    parser.add_argument("--scorer", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of the scorer's server")
    parser.add_argument("--per-call", type=int, nargs="+", default=[1, 5, 10, 20], help="(default: 1 5 10 20)")
    parser.add_argument("--cite", choices=get_args(Cite), default="words", help="(default: words)")
    parser.add_argument("--threads", type=int, default=16, help="calls under way at once (default: 16)")
    parser.add_argument("--answers", type=int, help="how many answers to judge (default: all)")
    arguments = parser.parse_args()
    limit_calls_in_flight(arguments.threads)
    examples = sorted(load_dataset(DATASET, arguments.data).examples, key=lambda e: e.answer)
    groups = [list(group) for _, group in groupby(examples, key=lambda e: e.answer)][: arguments.answers]
    lm = None
    if asks_lm(arguments.cite):
        lm = open_lm(arguments.scorer, api_base=arguments.api_base, cache=False)
    with use_lm(lm) if lm else nullcontext():
        judge(
            lm, [group[:1] for group in groups], arguments.cite, 1, arguments.threads
        )  # a warm-up, for what the server caches
        judged = {
            size: judge(lm, groups, arguments.cite, size, arguments.threads) for size in sorted(arguments.per_call)
        }
    print_labels([e for group in groups for e in group], judged)
    report(costs(judged), check=False)


if __name__ == "__main__":
    run(main)
