"""The non-factoid questions of QA sets, told by type classifier and pattern (Typed-RAG, section 4.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

import dspy

from typedrag.builders.builder import Built, usable
from typedrag.builders.question_patterns import types_by_pattern
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import example, sample
from typedrag.runs.work import Stages


class Selection(Protocol):
    """The settings that decide which questions are kept; see `WikiNFQA`."""

    patterns: bool
    per_subset: int | None
    seed: int


def select_non_factoid(
    questions: Mapping[str, Iterable[dspy.Example]],
    classifier: dspy.Module,
    stages: Stages,
    settings: Selection,
) -> tuple[list[dspy.Example], Built]:
    """Select the non-factoid questions, with all that is needed to write references for them.

    The paper classifies first and then looks for patterns. Here patterns come first, since they cost nothing;
    the same questions are left.

    Args:
        questions: By the name of the subset to make. The ground truth of each is the first of its
            `answers`, or else the best of its `references`.
        classifier: A type classifier; if it asks an LM, it asks the one in use.
        stages: Ask the classifier.

    Returns:
        Examples with `id` (SUBSET_ID), `question`, `subset`, `answers` (the ground truth first) and
        `question_type`, and a report of what was left out.

    Raises:
        InputError: If two questions of a subset have the same id.
        LMUnavailable: If the classifier needs a model that cannot be used.
    """
    report = Built()
    candidates = _candidates(questions, settings, report)

    def classify(candidate: dspy.Example) -> QuestionType:
        return QuestionType(classifier(question=candidate.question).question_type)

    selected: dict[str, list[dspy.Example]] = defaultdict(list)
    replies = stages.run("classified questions", classify, candidates)
    for candidate, named in usable(candidates, replies, report, "questions: ", "no type could be read"):
        if named not in QuestionType.non_factoid():
            report.left_out[f"questions: classified as {named}"] += 1
        else:
            selected[candidate.subset].append(example(**candidate.toDict(), question_type=named))
    return [e for examples in selected.values() for e in _drawn(examples, settings, report)], report


def _candidates(
    questions: Mapping[str, Iterable[dspy.Example]], settings: Selection, report: Built
) -> list[dspy.Example]:
    candidates: dict[str, dspy.Example] = {}
    ids: set[str] = set()
    for subset, originals in questions.items():
        for original in originals:
            question = " ".join(original.question.split())
            answers = [text for text in original.get("answers") or () if text.strip()]
            answers = answers or [reference.text for reference in (original.get("references") or ())[:1]]
            if not answers:
                report.left_out["questions: without an answer"] += 1
            elif settings.patterns and not types_by_pattern(question):
                report.left_out["questions: worded like no non-factoid question"] += 1
            elif question.casefold() in candidates:
                report.left_out["questions: it came before"] += 1
            else:
                identifier = f"{subset}_{original.id}"
                if identifier in ids:
                    raise InputError(f"two questions of '{subset}' have the id '{original.id}'", "Call the files apart")
                ids.add(identifier)
                candidates[question.casefold()] = example(
                    id=identifier, question=question, subset=subset, answers=tuple(answers)
                )
    return list(candidates.values())


def _drawn(questions: list[dspy.Example], settings: Selection, report: Built) -> list[dspy.Example]:
    limit = settings.per_subset
    if limit is None or len(questions) <= limit:
        return questions
    report.left_out[f"questions: more than the {limit:,} wanted of their subset"] += len(questions) - limit
    chosen = {e.id for e in sample(questions, limit, settings.seed)}
    return [e for e in questions if e.id in chosen]
