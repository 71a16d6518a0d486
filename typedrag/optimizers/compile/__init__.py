"""Compile a configuration to a folder that a server loads, with a verdict on held-out questions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typedrag.optimizers.compile.config import CompileConfig
    from typedrag.optimizers.compile.held_out import HeldOut
    from typedrag.optimizers.compile.run import CompileProgress, CompileResult, Plan, plan_compile, run_compile

__all__ = ["CompileConfig", "CompileProgress", "CompileResult", "HeldOut", "Plan", "plan_compile", "run_compile"]


def __getattr__(name: str) -> Any:  # the help of a compile, which reads its config, does not wait for DSPy
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    home = {"CompileConfig": "config", "HeldOut": "held_out"}.get(name, "run")
    return getattr(import_module(f"{__name__}.{home}"), name)
