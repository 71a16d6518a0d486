"""Compile a configuration to a folder that a server loads, with a verdict on held-out questions."""

from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.held_out import HeldOut
from typedrag.optimizers.compile.run import CompileProgress, CompileResult, Plan, plan_compile, run_compile

__all__ = ["CompileConfig", "CompileProgress", "CompileResult", "HeldOut", "Plan", "plan_compile", "run_compile"]
