"""The teleprompters that compile programs, found by name, and their shared parts."""

from typedrag.optimizers.compile.teleprompters import combined, few_shot, finetuning, instructions, reflective, written
from typedrag.optimizers.compile.teleprompters.budget import Budget, BudgetName
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, best_so_far, candidates_in
from typedrag.optimizers.compile.teleprompters.compilation import CompileRequest, CostEstimate, RunCost
from typedrag.optimizers.compile.teleprompters.optimizer import (
    Optimizer,
    OptimizerSettings,
    build_optimizer,
    by_budget,
    optimizer,
    optimizer_class,
    optimizer_names,
)

__all__ = [
    "Budget",
    "BudgetName",
    "Candidate",
    "CompileRequest",
    "CostEstimate",
    "Optimizer",
    "OptimizerSettings",
    "RunCost",
    "best_so_far",
    "build_optimizer",
    "by_budget",
    "candidates_in",
    "combined",
    "few_shot",
    "finetuning",
    "instructions",
    "optimizer",
    "optimizer_class",
    "optimizer_names",
    "reflective",
    "written",
]
