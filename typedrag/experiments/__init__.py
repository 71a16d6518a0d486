"""Running programs over many questions, and what such runs find out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typedrag.experiments.batch import AskedQuestion, Outcome, answer_questions, read_question_file, read_questions
    from typedrag.experiments.compiling import CompileConfig, run_compile
    from typedrag.experiments.config import EvaluationConfig
    from typedrag.experiments.config_file import read_config
    from typedrag.experiments.evaluate import run_evaluation
    from typedrag.experiments.results import MetricResult, QuestionResult, Run
    from typedrag.experiments.run_store import read_run
    from typedrag.experiments.scorers import as_scorer

# Imported at first use: who reads a run need not wait for DSPy, nor who asks questions for MLflow.
_HOMES = {
    "AskedQuestion": "batch",
    "CompileConfig": "compiling",
    "EvaluationConfig": "config",
    "MetricResult": "results",
    "Outcome": "batch",
    "QuestionResult": "results",
    "Run": "results",
    "answer_questions": "batch",
    "as_scorer": "scorers",
    "run_compile": "compiling",
    "run_evaluation": "evaluate",
    "read_config": "config_file",
    "read_question_file": "batch",
    "read_questions": "batch",
    "read_run": "run_store",
}

__all__ = [
    "AskedQuestion",
    "CompileConfig",
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
    "run_compile",
    "run_evaluation",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag.experiments' has no attribute '{name}'")
    return getattr(import_module(f"typedrag.experiments.{_HOMES[name]}"), name)
