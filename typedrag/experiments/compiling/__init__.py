"""Compiling, from a configuration to a folder that a server loads, with an honest verdict."""

from typedrag.experiments.compiling.config import CompileConfig
from typedrag.experiments.compiling.held_out import HeldOut
from typedrag.experiments.compiling.run import CompileResult, Plan, Watching, plan_compile, run_compile

__all__ = ["CompileConfig", "CompileResult", "HeldOut", "Plan", "Watching", "plan_compile", "run_compile"]
