"""Run programs over many questions, and evaluate, compare and report such runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from typedrag.core.extras import name_missing_extras

if TYPE_CHECKING:
    from typedrag.experiments.batch import AskedQuestion, Outcome, answer_questions, read_question_file, read_questions
    from typedrag.experiments.config import EvaluationConfig
    from typedrag.experiments.config_file import read_config
    from typedrag.experiments.evaluate import run_evaluation
    from typedrag.experiments.results import MetricResult, QuestionResult, Run, read_run
    from typedrag.experiments.tracking.scorers import as_scorer

# Imported at first use: reading a run need not wait for DSPy, nor asking questions for MLflow.
_HOMES = {
    **dict.fromkeys("AskedQuestion Outcome answer_questions read_question_file read_questions".split(), "batch"),
    **dict.fromkeys(("MetricResult", "QuestionResult", "Run", "read_run"), "results"),
    "EvaluationConfig": "config",
    "read_config": "config_file",
    "run_evaluation": "evaluate",
    "as_scorer": "tracking.scorers",
}
_MOVED = {"CompileConfig": "typedrag.optimizers.compile", "run_compile": "typedrag.optimizers.compile"}

__all__ = [
    "AskedQuestion", "EvaluationConfig", "MetricResult", "Outcome", "QuestionResult", "Run", "answer_questions",
    "as_scorer", "read_config", "read_question_file", "read_questions", "read_run", "run_evaluation",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise ImportError(f"{name} has moved: from {_MOVED[name]} import {name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag.experiments' has no attribute '{name}'")
    with name_missing_extras():
        return getattr(import_module(f"typedrag.experiments.{_HOMES[name]}"), name)
