"""The accuracy of PreQRAG's classifiers, which tell whether a question needs one document or several.

On questions with the scope as their subset, as `typedrag datasets build preqrag` makes them, prints for each make
its accuracy on all and on the questions of each scope (paper 3, table 1), its mistakes, its LM
calls and its wall time: `rule` (over the wording), `lm`, `either` (several documents if one of them says
so), `both` (if they agree), and with --compiled the LM of a compiled program.

    python -m benchmarks.document_scope questions.jsonl --lm vllm:qwen --compiled compiled/program
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import dspy

from typedrag.cli.terminal import run
from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope
from typedrag.core.records import fallbacks, total_usage
from typedrag.datasets import load_dataset
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.trace import collect_steps, run_concurrently
from typedrag.metrics.labels import confusion
from typedrag.optimizers.compile.targets import labelled_scopes
from typedrag.programs import Options, PreQRAG, PreQRAGOptions
from typedrag.programs.compiled import Compiled, build_without_index
from typedrag.programs.preqrag import LMScopeClassifier, build_scope_classifier

MAKES = ("rule", "lm", "either", "both")


@dataclass(frozen=True)
class Classified:
    """The scopes that a make named, in the order of the questions, and their cost.

    Attributes:
        scopes: The scopes that it named.
        unread: The number of questions on which the LM could not be read, so that the rule decided.
        calls: The number of LM calls.
        seconds: Wall time.
    """

    scopes: tuple[str, ...]
    unread: int
    calls: int
    seconds: float


def classify(classifier: dspy.Module, examples: Sequence[dspy.Example], threads: int) -> Classified:
    """The scopes of all questions, by a classifier."""

    def one(example: dspy.Example) -> tuple[str, bool, int]:
        with collect_steps() as steps:
            prediction = classifier(question=example.question)
        return str(prediction.scope), bool(fallbacks(steps)), total_usage(steps).lm_calls

    start = time.perf_counter()
    results = run_concurrently(one, examples, threads)
    scopes, unread, calls = zip(*results, strict=True)
    return Classified(scopes, sum(unread), sum(calls), time.perf_counter() - start)


def show(name: str, examples: Sequence[dspy.Example], classified: Classified) -> None:
    """Print the row of a make, with its mistakes."""
    actual = [e.scope for e in examples]
    right = [a == p for a, p in zip(actual, classified.scopes, strict=True)]
    cells = [f"{name:9} all {fmean(right):.3f}"]
    for scope in DocumentScope:
        of_scope = [hit for a, hit in zip(actual, right, strict=True) if a == scope]
        cells += [f"{scope} {fmean(of_scope):.3f}"] if of_scope else []
    table = confusion(actual, classified.scopes, [scope.value for scope in DocumentScope])
    mistakes = ", ".join(f"{right} as {wrong} {n}" for right, wrong, n in table.mistakes()) or "none"
    print(f"{', '.join(cells)}; mistakes: {mistakes}")
    print(f"{'':9} {classified.calls} LM calls, {classified.unread} replies unread, {classified.seconds:.1f} s")


def compiled_classifier(folder: Path) -> dspy.Module:
    """The classifier of a compiled preqrag which asks the LM.

    Raises:
        InputError: If it is a program of another kind, or classifies by rule.
    """
    program = Compiled.read(folder).build(build_without_index("preqrag").retriever)
    if not isinstance(program, PreQRAG) or not isinstance(program.classifier, LMScopeClassifier):
        raise InputError(f"{folder} holds no preqrag that asks the LM", "Compile scope-classifier-alone")
    return program.classifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="JSONL whose subsets are single-document and multi-document")
    parser.add_argument("--make", nargs="+", choices=MAKES, default=MAKES, help="(default: all)")
    parser.add_argument("--compiled", type=Path, help="folder of a compiled preqrag that asks the LM")
    parser.add_argument("--split", default="all", help="train, validation, test or all (default: all)")
    parser.add_argument("--lm", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of its server")
    parser.add_argument("--threads", type=int, default=16, help="calls under way at once (default: 16)")
    arguments = parser.parse_args()
    limit_calls_in_flight(arguments.threads)
    examples = labelled_scopes(load_dataset("file", arguments.data), arguments.split)
    options = {make: Options(preqrag=PreQRAGOptions(classifier=make)) for make in arguments.make}
    makes = {make: build_scope_classifier(option) for make, option in options.items()}
    if arguments.compiled:
        makes["compiled"] = compiled_classifier(arguments.compiled)
    print(f"{len(examples)} questions")
    rule = makes.pop("rule", None)
    if rule:
        show("rule", examples, classify(rule, examples, arguments.threads))
    if makes:
        with use_lm(open_lm(arguments.lm, api_base=arguments.api_base, cache=False)):
            for make, classifier in makes.items():
                show(make, examples, classify(classifier, examples, arguments.threads))


if __name__ == "__main__":
    run(main)
