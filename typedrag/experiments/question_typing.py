"""The question types by which questions are drawn, balanced and reported: the same for all programs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from itertools import zip_longest
from pathlib import Path

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import text_hash
from typedrag.experiments.judges.judging import judge_each
from typedrag.lms.lm import with_cache
from typedrag.lms.replies import use_reply_store
from typedrag.programs import Options, TypedRAG
from typedrag.programs.loading import ProgramSource
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier, build_type_classifier


def balance_types(examples: Sequence[dspy.Example], seed: int = 0) -> list[dspy.Example]:
    """The examples in an order in which question types take turns.

    Optimizers make demonstrations from the first examples that succeed: in this order, these are of
    as many types as possible. Types are ordered by name; the order within a type is random, and the same
    on every machine.

    Example:
        >>> of = lambda t, q: dspy.Example(question=q, question_type=t)
        >>> many = [of("reason", "Why a?"), of("reason", "Why b?"), of("reason", "Why c?"), of("debate", "Is d right?")]
        >>> [e.question_type for e in balance_types(many)]
        ['debate', 'reason', 'reason', 'reason']
    """
    by_lot = sorted(examples, key=lambda e: text_hash(str(e.get("id") or e.question), seed))
    return interleave_types(by_lot)


def interleave_types(examples: Iterable[dspy.Example]) -> list[dspy.Example]:
    """The examples in turn from each question type; the order within a type is kept.

    Example:
        >>> types = ["debate", "debate", "debate", "reason", "reason"]
        >>> [e.n for e in interleave_types(dspy.Example(question_type=t, n=n) for n, t in enumerate(types))]
        [0, 3, 1, 4, 2]
    """
    by_type: dict[str, list[dspy.Example]] = defaultdict(list)
    for example in examples:
        by_type[infer_type(example)].append(example)
    turns = zip_longest(*(by_type[name] for name in sorted(by_type)))
    return [example for turn in turns for example in turn if example is not None]


def known_type(example: dspy.Example) -> QuestionType | None:
    """The labelled type of an example's question, else the predicted one; None if there is neither.

    Example:
        >>> known_type(dspy.Example(question="Why?", predicted_type="debate"))
        <QuestionType.DEBATE: 'debate'>
    """
    label = example.get("question_type") or example.get("predicted_type")
    return QuestionType(label) if label else None


def infer_type(example: dspy.Example) -> QuestionType:
    """The `known_type`, else the type that the linear classifier names."""
    return known_type(example) or _classify(example.question)


@cache
def _classify(question: str) -> QuestionType:
    return LinearTypeClassifier()(question=question).question_type


DEFAULT_CLASSIFIER = Options().type_classifier  # which no configuration names


def program_classifier(source: ProgramSource, options: Options) -> dspy.Module:
    """The type classifier of a program with these options, compiled if the program is."""
    if source.compiled and source.compiled.options.type_classifier == options.type_classifier:
        program = source.compiled.without_index(options)
        if isinstance(program, TypedRAG):
            return program.classifier
    return build_type_classifier(options)


def untyped(examples: Sequence[dspy.Example]) -> list[str]:
    """The questions of the examples whose type is not known, each once."""
    return list(dict.fromkeys(e.question for e in examples if known_type(e) is None))


def with_types(
    examples: Sequence[dspy.Example], classifier: dspy.Module, lm: dspy.LM | None, *, replies: Path, threads: int
) -> list[dspy.Example]:
    """The examples, with a `predicted_type` for those whose type is not known; evidence-based if it cannot be read."""
    unknown = untyped(examples)
    if not unknown:
        return list(examples)
    with use_reply_store(replies) if lm else nullcontext():
        cached = with_cache(lm) if lm else None
        named = judge_each(
            lambda q: QuestionType(classifier(question=q).question_type), unknown, scorer=cached, threads=threads
        )
    types = dict.fromkeys(unknown, QuestionType.EVIDENCE_BASED) | dict(named.judgments)
    return [e if known_type(e) else e.copy(predicted_type=types[e.question]) for e in examples]
