"""The teleprompters that compile programs, found by name, and their shared parts."""

from typedrag.optimizers.compile.teleprompters import few_shot, gepa, instructions, simba
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, best_so_far, read_candidates
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
    "few_shot",
    "gepa",
    "instructions",
    "optimizer",
    "optimizer_class",
    "optimizer_names",
    "read_candidates",
    "simba",
]
