"""The quality and the cost of type classifiers, on questions whose types are known.

Tables in Markdown, a row for each classifier:

how well   For each set of questions: accuracy and macro-F1 over the types that occur, with 95 % bootstrap intervals,
           the expected calibration error, and the share of questions whose type is unsure (option `type_threshold`).
by type    The recall of each type, on the questions of --everyday.
by form    The accuracy on each form of question there.
cost       For a question: milliseconds of wall time and of this process's CPU time, LM calls and tokens; and the number
           of questions that failed, which count as wrong.

The sets: --everyday FILE in the layout of dataset `everyday`; --nf-cats FOLDER, all of its part valid and those that
people labelled; --wiki-nfqa FOLDER, the questions that are labelled by hand in configs/question_types.json. A
classifier that asks an LM sees --limit questions of each, drawn by hash.

    python -m benchmarks.type_classifiers --everyday questions.jsonl --nf-cats FOLDER --wiki-nfqa FOLDER
    python -m benchmarks.type_classifiers --everyday questions.jsonl --classifier linear lm --lm vllm:qwen
    python -m benchmarks.type_classifiers --everyday questions.jsonl --compiled FOLDER --lm vllm:qwen
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from benchmarks.calibration import expected_calibration_error
from typedrag.cli.terminal import run
from typedrag.core.errors import StepFailed
from typedrag.core.question_types import TYPE_CLASSIFIERS, QuestionForm, QuestionType
from typedrag.core.records import Usage, total_usage
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import text_hash
from typedrag.experiments.loading import load_type_classifier
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.lms.trace import Stopwatch, collect_steps, count_replays, run_concurrently
from typedrag.metrics.estimate import bootstrap_estimate
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier

TYPES = list(QuestionType)
FAILED = len(TYPES)
"""The number of a failure, in place of a type's."""
HAND_LABELS = Path(__file__).parents[1] / "configs" / "question_types.json"
EVERYDAY = "everyday"

Sets = Mapping[str, Sequence[dspy.Example]]


@dataclass(frozen=True)
class Named:
    """The type that a classifier named for a question, and its cost.

    Attributes:
        example: The question, with its right type.
        predicted: The number of the type, or `FAILED`.
        probability: The probability of the type, if the classifier gives one.
        seconds: Wall time.
        usage: The usage of LMs.
    """

    example: dspy.Example
    predicted: int
    probability: float | None
    seconds: float
    usage: Usage

    @property
    def actual(self) -> int:
        return TYPES.index(self.example.question_type)

    @property
    def right(self) -> bool:
        return self.predicted == self.actual


def read_sets(arguments: argparse.Namespace) -> Sets:
    """The sets of questions that the arguments name."""
    sets: dict[str, Sequence[dspy.Example]] = {}
    if arguments.everyday:
        sets[EVERYDAY] = load_dataset("everyday", arguments.everyday).examples
    if arguments.nf_cats:
        valid = load_dataset("nf-cats", arguments.nf_cats, subset="valid").examples
        sets["NF-CATS valid"] = valid
        sets["NF-CATS valid, by people"] = [e for e in valid if e.annotated_by != "unsupervised"]
    if arguments.wiki_nfqa:
        types = json.loads(HAND_LABELS.read_text("utf-8"))["wiki-nfqa"]
        examples = load_dataset("wiki-nfqa", arguments.wiki_nfqa).examples
        labelled = [e.copy(question_type=QuestionType(types[e.id])) for e in examples if e.id in types]
        sets["Wiki-NFQA, by hand"] = labelled
    return sets


def ask(classifier: dspy.Module, examples: Sequence[dspy.Example], threads: int) -> list[Named]:
    """The types that a classifier names."""
    return run_concurrently(lambda e: name(classifier, e), examples, threads)


def name(classifier: dspy.Module, example: dspy.Example) -> Named:
    with count_replays(), collect_steps() as steps:
        watch = Stopwatch()
        try:
            prediction = classifier(question=example.question)
            predicted, probability = TYPES.index(prediction.question_type), prediction.probability
        except StepFailed as failure:
            print(f"'{example.question}': {failure}")
            predicted, probability = FAILED, None
        return Named(example, predicted, probability, watch.seconds, total_usage(steps))


def accuracy(actual: Any, predicted: Any) -> float:
    return float((actual == predicted).mean())


def macro_f1(actual: Any, predicted: Any) -> float:
    """Macro-F1 over the types that occur among the labels."""
    count = FAILED + 1
    right, many = np.bincount(actual[actual == predicted], minlength=count), np.bincount(actual, minlength=count)
    occur = many > 0
    return float(np.mean(2 * right[occur] / (many + np.bincount(predicted, minlength=count))[occur]))


def quality(named: Sequence[Named], threshold: float) -> list[str]:
    """The cells of the first table."""
    actual, predicted = [n.actual for n in named], [n.predicted for n in named]
    estimates = [str(bootstrap_estimate(measure, actual, predicted)) for measure in (accuracy, macro_f1)]
    sure = [(n.probability, n.right) for n in named if n.probability is not None]
    if not sure:
        return [str(len(named)), *estimates, "", ""]
    error = expected_calibration_error([p for p, _ in sure], [right for _, right in sure])
    unsure = sum(p < threshold for p, _ in sure) / len(named)
    return [str(len(named)), *estimates, f"{error:.3f}", f"{unsure:.1%}"]


def shares(named: Sequence[Named], group: Callable[[Named], str], groups: Sequence[str]) -> list[str]:
    """The share of right ones in each group, and their number."""
    of: dict[str, list[bool]] = defaultdict(list)
    for one in named:
        of[group(one)].append(one.right)
    return [f"{np.mean(of[g]):.2f} of {len(of[g])}" if of[g] else "" for g in groups]


def cost(named: Sequence[Named], cpu_seconds: float) -> list[str]:
    """The cells of the last table."""
    n, usage = len(named), sum((x.usage for x in named), Usage())
    return [
        f"{1000 * sum(x.seconds for x in named) / n:.1f}",
        f"{1000 * cpu_seconds / n:.1f}",
        f"{usage.lm_calls / n:.2f}",
        f"{(usage.prompt_tokens + usage.completion_tokens) / n:.0f}",
        str(sum(x.predicted == FAILED for x in named)),
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
    with use_reply_store(replies) if replies else nullcontext(), use_lm(lm):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everyday", type=Path, metavar="FILE", help="questions in the layout of dataset everyday")
    parser.add_argument("--nf-cats", type=Path, metavar="FOLDER", help="with valid.csv")
    parser.add_argument("--wiki-nfqa", type=Path, metavar="FOLDER", help="with the authors' files")
    parser.add_argument(
        "--classifier",
        nargs="+",
        default=["linear", "embedding"],
        metavar="NAME",
        help=f"of: {TYPE_CLASSIFIERS.forms} (default: both)",
    )
    parser.add_argument("--compiled", nargs="+", type=Path, default=[], metavar="FOLDER", help="compiled programs")
    parser.add_argument("--lm", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of the LM's server")
    parser.add_argument("--replies", type=Path, help="file to keep LM replies in, with which a killed command resumes")
    parser.add_argument("--limit", type=int, help="questions of a set that an LM sees (default: all)")
    parser.add_argument("--threads", type=int, default=1, help="questions at once (default: 1)")
    arguments = parser.parse_args()
    sets, threshold = read_sets(arguments), Options().type_threshold
    if not sets:
        parser.error("name a set of questions: --everyday, --nf-cats or --wiki-nfqa")
    limit_calls_in_flight(arguments.threads)
    classifiers = {f"compiled: {folder}": load_type_classifier(folder)[0] for folder in arguments.compiled}
    asking = {*classifiers, *(c for c in arguments.classifier if TYPE_CLASSIFIERS.parse(c).kind == "lm")}
    classifiers |= {c: build_type_classifier(Options(type_classifier=c)) for c in arguments.classifier}
    tables: dict[str, list[list[str]]] = defaultdict(list)
    with lm_of(arguments) if asking else nullcontext():
        for c, classifier in classifiers.items():
            name(classifier, next(iter(sets.values()))[0])  # which loads it
            before, everything = time.process_time(), []
            for of, examples in sets.items():
                drawn = sorted(examples, key=lambda e: text_hash(e.id))[: arguments.limit if c in asking else None]
                everything += (named := ask(classifier, drawn, arguments.threads))
                tables["how well"].append([of, c, *quality(named, threshold)])
                if of == EVERYDAY:
                    tables["by type"].append([c, *shares(named, lambda n: str(n.example.question_type), TYPES)])
                    tables["by form"].append([c, *shares(named, lambda n: n.example.subset, list(QuestionForm))])
            tables["cost"].append([c, *cost(everything, time.process_time() - before)])
    headers = {
        "how well": ["questions", "classifier", "n", "accuracy", "macro-F1", "calibration error", "unsure"],
        "by type": ["classifier", *TYPES],
        "by form": ["classifier", *QuestionForm],
        "cost": ["classifier", "wall ms", "CPU ms", "LM calls", "LM tokens", "failed"],
    }
    for title, lines in tables.items():
        print_table(headers[title], lines)


if __name__ == "__main__":
    run(main)
