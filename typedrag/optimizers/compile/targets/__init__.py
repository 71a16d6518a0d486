"""Targets of compiles: a program, some of its modules, and modules that learn from labels of their own."""

from __future__ import annotations

from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole
from typedrag.optimizers.compile.targets.judges import (
    JUDGES,
    CoverageJudgeTarget,
    JudgeTarget,
    LinkageJudgeTarget,
    SubQuestionTyperTarget,
)
from typedrag.optimizers.compile.targets.modules import MODULES, ProgramTarget, SearchTarget, modules_of
from typedrag.optimizers.compile.targets.parts import (
    ScopeClassifierTarget,
    SubAspectExplorerTarget,
    TypeClassifierTarget,
)
from typedrag.optimizers.compile.targets.revelator import RevelatorTarget
from typedrag.optimizers.compile.targets.target import Target

_SEARCHING = ("keyword-extractor", "comparison-frame", "reason-sub-queries", "instruction-sub-queries", "debate-frame")

ALONE: dict[str, Target] = {
    target.name: target
    for target in (
        TypeClassifierTarget(),
        ScopeClassifierTarget(),
        SubAspectExplorerTarget(),
        SearchTarget(_SEARCHING, "searches-alone"),
        *(SearchTarget([module], f"{module}-alone") for module in _SEARCHING),
        SubQuestionTyperTarget(),
        LinkageJudgeTarget(),
        *(RevelatorTarget(role) for role in RevelatorRole),
    )
} | {"coverage-judge-alone": CoverageJudgeTarget()}  # without "alone" it is the module of a program
"""Targets that learn from labels of their own instead of whole answers, by name."""


def target_for(spec: str) -> Target:
    """The target that a spec names: empty for the whole program, modules with commas between, or a name of `ALONE`.

    Raises:
        InputError: If there is no such target.

    Example:
        >>> target_for("answer,debate-mediator").name
        'answer,debate-mediator'
    """
    if spec in ALONE:
        return ALONE[spec]
    names = [name.strip() for name in spec.split(",") if name.strip()]
    if names == ["in-order"]:
        hint = "Compile one --module, then the next of what came out: --program OUT/program"
        raise InputError("modules are no longer compiled in order by one command", hint)
    if unknown := [name for name in names if name not in MODULES]:
        raise InputError(
            f"nothing that can be compiled is called '{unknown[0]}'",
            f"Modules: {', '.join(MODULES)}; alone: {', '.join(ALONE)}",
        )
    return ProgramTarget(names)


__all__ = [
    "ALONE",
    "JUDGES",
    "MODULES",
    "CoverageJudgeTarget",
    "JudgeTarget",
    "LinkageJudgeTarget",
    "ProgramTarget",
    "RevelatorTarget",
    "SearchTarget",
    "SubQuestionTyperTarget",
    "Target",
    "modules_of",
    "target_for",
]
