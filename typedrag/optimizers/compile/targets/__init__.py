"""Targets of compiles: a program, some of its modules, and modules that learn from labels of their own."""

from __future__ import annotations

from typedrag.errors import InputError
from typedrag.optimizers.compile.targets.judges import (
    CoverageJudgeTarget,
    JudgeTarget,
    LinkageJudgeTarget,
    SubQuestionTyperTarget,
    judge_target,
)
from typedrag.optimizers.compile.targets.modules import MODULES, ProgramTarget, SearchTarget, in_order, modules_of
from typedrag.optimizers.compile.targets.parts import (
    ScopeClassifierTarget,
    SubAspectExplorerTarget,
    TypeClassifierTarget,
)
from typedrag.optimizers.compile.targets.revelator import RevelatorTarget
from typedrag.optimizers.compile.targets.target import Target
from typedrag.programs import Program
from typedrag.question_types import RevelatorRole

_SEARCHING = ("keyword-extractor", "comparison-frame", "reason-sub-queries", "instruction-sub-queries", "debate-frame")
IN_ORDER = "in-order"

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


def targets_for(spec: str, program: Program | None = None) -> list[Target]:
    """The targets that a spec names, in the order in which they are compiled.

    Args:
        spec: Empty for the whole program; modules with commas between, which are compiled together;
            `in-order` for one module after the other; or a name of `ALONE`.
        program: The program whose modules `in-order` lists; other specs need none.

    Raises:
        InputError: If there is no such target.

    Example:
        >>> [target.name for target in targets_for("answer,debate-mediator")]
        ['answer,debate-mediator']
    """
    if spec == IN_ORDER:
        if program is None:
            raise InputError("modules are compiled in the order of a program", "Name one: --program NAME")
        return list(in_order(program))
    if spec in ALONE:
        return [ALONE[spec]]
    names = [name.strip() for name in spec.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MODULES]:
        raise InputError(
            f"nothing that can be compiled is called '{unknown[0]}'",
            f"Modules: {', '.join(MODULES)}; {IN_ORDER}; alone: {', '.join(ALONE)}",
        )
    return [ProgramTarget(names)]


__all__ = [
    "ALONE",
    "IN_ORDER",
    "MODULES",
    "CoverageJudgeTarget",
    "JudgeTarget",
    "LinkageJudgeTarget",
    "ProgramTarget",
    "RevelatorTarget",
    "SearchTarget",
    "SubQuestionTyperTarget",
    "Target",
    "in_order",
    "judge_target",
    "modules_of",
    "targets_for",
]
