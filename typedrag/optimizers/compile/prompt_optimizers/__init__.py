"""The optimizers that compile programs, found by name; importing this registers them."""

from typedrag.optimizers.compile.prompt_optimizers import few_shot, gepa, instructions, simba
from typedrag.optimizers.compile.prompt_optimizers.base import (
    Optimizer,
    build_optimizer,
    by_budget,
    optimizer,
    optimizer_class,
    optimizer_names,
)

__all__ = ["Optimizer", "build_optimizer", "by_budget", "few_shot", "gepa", "instructions"]
__all__ += ["optimizer", "optimizer_class", "optimizer_names", "simba"]
