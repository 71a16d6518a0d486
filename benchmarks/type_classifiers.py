"""The quality and the cost of the makes of type classifiers, on NF-CATS valid.

Two tables in Markdown, a row for each make:

how well   Accuracy, and macro-F1 over the types that occur among the labels, with 95 % bootstrap
           intervals: on all questions, on those outside the class not-a-question, and on the
           questions that people labelled. (All factoid and nearly all debate questions were
           labelled by clustering.) A question that a make fails on counts as wrong.
cost       For a question: milliseconds of wall time and of this process's CPU time, LM calls, LM
           tokens, and the share of questions on which an LM was asked. Beside them the expected
           calibration error of makes with probabilities, and the number of questions that failed.

Makes that ask an LM see the questions that --limit draws, by hash, with types as frequent as in all;
beside them the others are shown on the same questions.

    python -m benchmarks.type_classifiers nf_cats --make linear embedding linear+embedding
    python -m benchmarks.type_classifiers nf_cats --make linear cascade:linear,lm --lm vllm:qwen --limit 300
    python -m benchmarks.type_classifiers nf_cats --make lm --compiled FOLDER --lm vllm:qwen --limit 300
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.calibration import expected_calibration_error
from typedrag.cli.script import run
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import hash_of
from typedrag.errors import StepFailed
from typedrag.experiments.loading import load_type_classifier
from typedrag.lms.lm import limit_calls_in_flight, open_lm, use_lm
from typedrag.lms.replies import replies_beside
from typedrag.lms.trail import Stopwatch, counting_replays, recording, run_concurrently
from typedrag.metrics.arithmetic.estimate import bootstrap_estimate
from typedrag.programs import Options
from typedrag.programs.makes import FORMS, make_named
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.question_types import QuestionType
from typedrag.records import Estimate, Usage, total_usage

TYPES = list(QuestionType)
FAILED = len(TYPES)
"""The number of a failure, in place of a type's."""

SETS: dict[str, Callable[[dspy.Example], bool]] = {
    "all": lambda e: True,
    "without not-a-question": lambda e: e.question_type is not QuestionType.NOT_A_QUESTION,
    "labelled by people": lambda e: e.annotated_by != "unsupervised",
}


@dataclass(frozen=True)
class Named:
    """The type that a make named for a question, and its cost.

    Attributes:
        example: The question.
        predicted: The number of the type, or `FAILED`.
        probability: The probability of the type, if the make gives one.
        seconds: Wall time.
        usage: The usage of LMs.
        to_lm: True if an LM was asked.
    """

    example: dspy.Example
    predicted: int
    probability: float | None
    seconds: float
    usage: Usage
    to_lm: bool

    @property
    def actual(self) -> int:
        return TYPES.index(self.example.question_type)


@dataclass(frozen=True)
class Row:
    """The results of a make on some questions.

    Attributes:
        name: The name of the make, and of the questions if they are not all.
        named: The result on each question.
        cpu_seconds: The process's CPU seconds for all of them; None if not known.
    """

    name: str
    named: Sequence[Named]
    cpu_seconds: float | None


def ask(make: str, classifier: dspy.Module, examples: Sequence[dspy.Example], threads: int) -> Row:
    """The types that a make names for the questions, measured once it is warm."""
    name(classifier, examples[0])
    before = time.process_time()
    named = run_concurrently(lambda e: name(classifier, e), examples, threads)
    return Row(make, named, time.process_time() - before)


def name(classifier: dspy.Module, example: dspy.Example) -> Named:
    with counting_replays(), recording() as steps:
        watch = Stopwatch()
        try:
            prediction = classifier(question=example.question)
            predicted, probability = TYPES.index(prediction.question_type), prediction.probability
        except StepFailed as failure:
            print(f"'{example.question}': {failure}")
            predicted, probability = FAILED, None
        seconds = watch.seconds
    usage = total_usage(steps)
    return Named(example, predicted, probability, seconds, usage, usage.lm_calls > 0)


def on_the_same(row: Row, examples: Iterable[dspy.Example]) -> Row:
    """The row of a make on fewer questions."""
    ids = {e.id for e in examples}
    return Row(f"{row.name}, the LM's questions", [n for n in row.named if n.example.id in ids], None)


def accuracy(actual: Any, predicted: Any) -> float:
    return float((actual == predicted).mean())


def macro_f1(actual: Any, predicted: Any) -> float:
    """Macro-F1 over the types that occur among the labels."""
    count = FAILED + 1
    right, many = np.bincount(actual[actual == predicted], minlength=count), np.bincount(actual, minlength=count)
    occur = many > 0
    return float(np.mean(2 * right[occur] / (many + np.bincount(predicted, minlength=count))[occur]))


def estimates(row: Row, test: Callable[[dspy.Example], bool]) -> list[Estimate | None]:
    """Accuracy and macro-F1 on the questions that pass a test."""
    pairs = [(n.actual, n.predicted) for n in row.named if test(n.example)]
    actual, predicted = [a for a, _ in pairs], [g for _, g in pairs]
    return [bootstrap_estimate(measure, actual, predicted) for measure in (accuracy, macro_f1)]


def print_quality(rows: Sequence[Row]) -> None:
    cells = [f"{kind}, {measure}" for kind in SETS for measure in ("accuracy", "macro-F1")]
    lines = []
    for row in rows:
        results = [estimates(row, test) for test in SETS.values()]
        sizes = "/".join(str(both[0].n if both[0] else 0) for both in results)
        lines.append([row.name, sizes, *(str(e) if e else "" for both in results for e in both)])
    print_table(["make", "n", *cells], lines)


def print_cost(rows: Sequence[Row]) -> None:
    header = ["make", "wall ms", "CPU ms", "LM calls", "LM tokens", "asked an LM", "calibration error", "failed"]
    print_table(header, [cost(row) for row in rows])


def cost(row: Row) -> list[str]:
    n = len(row.named)
    usage = sum((x.usage for x in row.named), Usage())
    sure = [(x.probability, x.predicted == x.actual) for x in row.named if x.probability is not None]
    error = expected_calibration_error([p for p, _ in sure], [right for _, right in sure]) if sure else None
    return [
        row.name,
        f"{1000 * sum(x.seconds for x in row.named) / n:.1f}",
        "" if row.cpu_seconds is None else f"{1000 * row.cpu_seconds / n:.1f}",
        f"{usage.lm_calls / n:.2f}",
        f"{(usage.prompt_tokens + usage.completion_tokens) / n:.0f}",
        f"{sum(x.to_lm for x in row.named) / n:.1%}",
        "" if error is None else f"{error:.3f}",
        str(sum(x.predicted == FAILED for x in row.named)),
    ]


def print_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    for line in (header, ["---"] * len(header), *lines):
        print(f"| {' | '.join(line)} |")
    print()


@contextmanager
def lm_of(arguments: argparse.Namespace) -> Iterator[None]:
    """Ask the LM of the arguments within, and keep its replies if they name a file."""
    replies = arguments.replies
    lm = open_lm(arguments.lm, api_base=arguments.api_base, cache=replies is not None)
    with replies_beside(replies) if replies else nullcontext(), use_lm(lm):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of NF-CATS, with valid.csv")
    parser.add_argument(
        "--make",
        nargs="+",
        default=["linear", "embedding", "linear+embedding"],
        dest="makes",
        metavar="MAKE",
        help=f"of: {FORMS} (default: linear embedding linear+embedding)",
    )
    parser.add_argument(
        "--compiled",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="programs whose type classifier was compiled, not on valid.csv: see configs/compile-type-classifier.yaml",
    )
    parser.add_argument("--threshold", type=float, help="of cascades: the option type_threshold")
    parser.add_argument("--lm", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of the LM's server")
    parser.add_argument("--replies", type=Path, help="file to keep LM replies in, with which a killed command goes on")
    parser.add_argument("--limit", type=int, help="questions that makes that ask an LM see (default: all)")
    parser.add_argument("--threads", type=int, default=1, help="questions at once (default: 1)")
    arguments = parser.parse_args()
    compiled = {f"compiled: {folder}": load_type_classifier(folder)[0] for folder in arguments.compiled}
    asking = [m for m in arguments.makes if make_named(m).asks_lm] + list(compiled)
    options = {"type_threshold": arguments.threshold}
    options = {name: value for name, value in options.items() if value is not None}
    examples = load_dataset("nf-cats", arguments.data, subset="valid").examples
    drawn = sorted(examples, key=lambda e: hash_of(e.id))[: arguments.limit]
    limit_calls_in_flight(arguments.threads)
    with lm_of(arguments) if asking else nullcontext():
        makes = {m: build_type_classifier(Options(type_classifier=m, **options)) for m in arguments.makes} | compiled
        rows = [
            ask(m, classifier, drawn if m in asking else examples, arguments.threads) for m, classifier in makes.items()
        ]
    if asking and len(drawn) < len(examples):
        rows += [on_the_same(row, drawn) for row in rows if row.name not in asking]
    print_quality(rows)
    print_cost(rows)


if __name__ == "__main__":
    run(main)
