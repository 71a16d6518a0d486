"""The teleprompters that compile programs, found by name, and their shared parts."""

from typedrag.optimizers.compile.teleprompters import few_shot, gepa, instructions, mipro, simba
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, best_so_far, candidates_in
from typedrag.optimizers.compile.teleprompters.optimizer import (
    BUDGET_CALLS,
    BudgetName,
    CompileRequest,
    Optimizer,
    OptimizerSettings,
    build_optimizer,
    by_budget,
    optimizer,
    optimizer_class,
    optimizer_names,
)

__all__ = [
    "BUDGET_CALLS",
    "BudgetName",
    "Candidate",
    "CompileRequest",
    "Optimizer",
    "OptimizerSettings",
    "best_so_far",
    "build_optimizer",
    "by_budget",
    "candidates_in",
    "few_shot",
    "gepa",
    "instructions",
    "mipro",
    "optimizer",
    "optimizer_class",
    "optimizer_names",
    "simba",
]
