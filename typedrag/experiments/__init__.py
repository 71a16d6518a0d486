"""Running programs over many questions, and what such runs find out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from typedrag.extras import missing_extras_named

if TYPE_CHECKING:
    from typedrag.experiments.evaluate.batch import (
        AskedQuestion,
        Outcome,
        answer_questions,
        read_question_file,
        read_questions,
    )
    from typedrag.experiments.evaluate.config import EvaluationConfig
    from typedrag.experiments.evaluate.config_file import read_config
    from typedrag.experiments.evaluate.evaluate import run_evaluation
    from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run
    from typedrag.experiments.evaluate.run_store import read_run
    from typedrag.experiments.scorers import as_scorer

# Imported at first use: who reads a run need not wait for DSPy, nor who asks questions for MLflow.
_HOMES = {
    "AskedQuestion": "evaluate.batch",
    "EvaluationConfig": "evaluate.config",
    "MetricResult": "evaluate.results",
    "Outcome": "evaluate.batch",
    "QuestionResult": "evaluate.results",
    "Run": "evaluate.results",
    "answer_questions": "evaluate.batch",
    "as_scorer": "scorers",
    "run_evaluation": "evaluate.evaluate",
    "read_config": "evaluate.config_file",
    "read_question_file": "evaluate.batch",
    "read_questions": "evaluate.batch",
    "read_run": "evaluate.run_store",
}

__all__ = [
    "AskedQuestion",
    "EvaluationConfig",
    "MetricResult",
    "Outcome",
    "QuestionResult",
    "Run",
    "answer_questions",
    "as_scorer",
    "read_config",
    "read_question_file",
    "read_questions",
    "read_run",
    "run_evaluation",
]


_MOVED = {"CompileConfig": "typedrag.optimizers.compile", "run_compile": "typedrag.optimizers.compile"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise ImportError(f"{name} has moved: from {_MOVED[name]} import {name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag.experiments' has no attribute '{name}'")
    with missing_extras_named():
        return getattr(import_module(f"typedrag.experiments.{_HOMES[name]}"), name)
