"""What each program makes of the sample questions, and what metrics that ask no LM say of it."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import dspy

from tests.contract.lm import deterministic_lm
from tests.contract.sample import sample_index
from tests.programs.passages import ASKING_PROGRAMS
from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Answer
from typedrag.datasets import load_dataset
from typedrag.metrics import build_metric
from typedrag.programs import build_program
from typedrag.retrieval import BM25Retriever

METRICS = ("retrieval", "defects", "steps", "question-type")


def answers() -> dict[str, Any]:
    """By program and question: the answer's digest, passages, steps and measures."""
    examples = load_dataset("sample").examples
    with sample_index() as index, deterministic_lm():
        retriever = BM25Retriever(index)
        programs = {name: build_program(name, retriever) for name in ASKING_PROGRAMS}
        return {
            name: {e.id: _about(e, program(question=e.question)) for e in examples}
            for name, program in programs.items()
        }


def _about(example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Any]:
    answer = Answer.from_prediction(prediction)
    return {
        "answer": {
            "digest": hashlib.sha256(answer.answer.encode()).hexdigest()[:12],
            "answered": answer.answered,
            "type": answer.question_type,
            "fallback": answer.fallback,
            "lm_calls": answer.usage.lm_calls,
        },
        "passages": {"read": " ".join(p.id for p in answer.passages), "cited": " ".join(answer.citations)},
        "steps": " ".join(step.name for top in answer.steps for step in top.walk()),
        "measures": ", ".join(_measures(example, prediction)),
    }


def _measures(example: dspy.Example, prediction: dspy.Prediction) -> Iterator[str]:
    for name in METRICS:
        with suppress(NotMeasurable):
            for measure, value in build_metric(name)(example, prediction).measures.items():
                yield f"{name}/{measure} {value:.6g}"
