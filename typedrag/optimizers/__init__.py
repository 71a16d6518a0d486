"""Making programs better: teleprompters that compile them."""

from typedrag.optimizers import combined, few_shot, finetuning, instructions, reflective, written  # make theirs known
from typedrag.optimizers.budget import Budget, BudgetName
from typedrag.optimizers.candidates import Candidate, best_so_far, candidates_in
from typedrag.optimizers.compiling import CompileOutcome, compile_module, measure_run_cost, spent_in
from typedrag.optimizers.optimizer import (
    CompileRequest,
    Estimate,
    Optimizer,
    OptimizerSettings,
    RunCost,
    build_optimizer,
    optimizer,
    optimizer_class,
    optimizer_names,
)

__all__ = [
    "Budget",
    "BudgetName",
    "Candidate",
    "CompileOutcome",
    "CompileRequest",
    "Estimate",
    "Optimizer",
    "OptimizerSettings",
    "RunCost",
    "best_so_far",
    "build_optimizer",
    "candidates_in",
    "combined",
    "compile_module",
    "few_shot",
    "finetuning",
    "instructions",
    "measure_run_cost",
    "optimizer",
    "optimizer_class",
    "optimizer_names",
    "reflective",
    "spent_in",
    "written",
]
