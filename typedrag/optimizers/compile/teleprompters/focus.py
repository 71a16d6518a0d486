"""Compiling a part of a program: teleprompters see some of its predictors, and all of it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import dspy

from typedrag.programs.artifact.state import named_predictors

M = TypeVar("M", bound=dspy.Module)
_WITHIN = "program."


class Focused(dspy.Module):
    """A program of which teleprompters see only some predictors.

    DSPy's own way, to mark sub-modules as compiled, cannot hide a predictor that stands beside one
    which is to be seen.
    """

    def __init__(self, program: dspy.Module, names: Collection[str]) -> None:
        super().__init__()
        self.program = program
        self.names = frozenset(names)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """What the program predicts."""
        return self.program(**inputs)

    def named_parameters(self) -> list[tuple[str, dspy.Predict]]:
        """The predictors that are seen: DSPy asks for no others."""
        return [(f"{_WITHIN}{n}", p) for n, p in named_predictors(self.program).items() if n in self.names]


class _Silent(dspy.Module):
    """Takes the place of a predictor that writes, and writes nothing: no LM is asked."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Empty outputs."""
        return dspy.Prediction(**self._outputs)


def silence(module: dspy.Module, which: Callable[[type[dspy.Signature]], bool], outputs: dict[str, Any]) -> dspy.Module:
    """A copy of a module in which predictors of some signatures predict these outputs, and ask no LM."""
    silent = unfrozen(module)
    silent.map_named_predictors(lambda p: _Silent(outputs) if which(p.signature) else p)
    return silent


def unfrozen(module: M) -> M:
    """A copy with nothing in it marked as compiled: what is so marked DSPy neither compiles nor saves."""
    copy: M = module.deepcopy()
    for _, part in copy.named_sub_modules(dspy.Module):
        part._compiled = False
    return copy
