"""Run programs over many questions, and evaluate, compare and report such runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from typedrag.core.extras import name_missing_extras

if TYPE_CHECKING:
    from typedrag.experiments.batch import AskedQuestion as AskedQuestion
    from typedrag.experiments.batch import Outcome as Outcome
    from typedrag.experiments.batch import answer_questions as answer_questions
    from typedrag.experiments.batch import read_question_file as read_question_file
    from typedrag.experiments.batch import read_questions as read_questions
    from typedrag.experiments.config import EvaluationConfig as EvaluationConfig
    from typedrag.experiments.config_file import read_config as read_config
    from typedrag.experiments.evaluate import run_evaluation as run_evaluation
    from typedrag.experiments.results import MetricResult as MetricResult
    from typedrag.experiments.results import QuestionResult as QuestionResult
    from typedrag.experiments.results import Run as Run
    from typedrag.experiments.results import read_run as read_run
    from typedrag.experiments.tracking.scorers import as_scorer as as_scorer

# Imported at first use: reading a run need not wait for DSPy, nor asking questions for MLflow.
_HOMES = {
    "AskedQuestion": "batch",
    "EvaluationConfig": "config",
    "MetricResult": "results",
    "Outcome": "batch",
    "QuestionResult": "results",
    "Run": "results",
    "answer_questions": "batch",
    "as_scorer": "tracking.scorers",
    "run_evaluation": "evaluate",
    "read_config": "config_file",
    "read_question_file": "batch",
    "read_questions": "batch",
    "read_run": "results",
}

__all__ = sorted(_HOMES)

_MOVED = {"CompileConfig": "typedrag.optimizers.compile", "run_compile": "typedrag.optimizers.compile"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise ImportError(f"{name} has moved: from {_MOVED[name]} import {name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag.experiments' has no attribute '{name}'")
    with name_missing_extras():
        return getattr(import_module(f"typedrag.experiments.{_HOMES[name]}"), name)
