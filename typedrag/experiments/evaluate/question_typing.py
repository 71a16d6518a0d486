"""The question types by which questions are drawn, balanced and reported: the same for all programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.experiments.balance import known_type
from typedrag.experiments.judges.judging import judge_each
from typedrag.lms.lm import with_cache
from typedrag.lms.replies import use_reply_store
from typedrag.programs import Options, TypedRAG
from typedrag.programs.loading import ProgramSource
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier

UNSAID = Options().type_classifier
"""The default type classifier, which no configuration names."""


def classifier_of(source: ProgramSource, options: Options) -> dspy.Module:
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
    """The examples, with a `predicted_type` for those whose type is not known.

    If the LM's reply cannot be read, the type is evidence-based, as in the program.

    Args:
        examples: The examples.
        classifier: The type classifier.
        lm: The LM that the classifier asks; None if it asks none.
        replies: The file of the LM's stored replies, which the program reuses.
        threads: Questions under way at once.
    """
    unknown = untyped(examples)
    if not unknown:
        return list(examples)
    keeping: AbstractContextManager[None] = use_reply_store(replies) if lm else nullcontext()
    with keeping:
        named = judge_each(
            lambda question: QuestionType(classifier(question=question).question_type),
            unknown,
            scorer=with_cache(lm) if lm else None,
            threads=threads,
        )
    types = dict.fromkeys(unknown, QuestionType.EVIDENCE_BASED) | dict(named.judgments)
    return [e if known_type(e) else e.copy(predicted_type=types[e.question]) for e in examples]
