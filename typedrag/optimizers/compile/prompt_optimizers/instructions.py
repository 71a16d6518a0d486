"""Optimizers that choose among instructions that people wrote."""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import dspy
from pydantic import PositiveInt

from typedrag.core.errors import InputError
from typedrag.optimizers.compile.prompt_optimizers import base
from typedrag.programs.artifact import rename_signature
from typedrag.signatures import all_signatures

ANSWER_RULES = (
    "Begin with the direct answer to the question, then give its reasons, details and examples.",
    "Write two or three full paragraphs.",
    "Leave out what does not bear on the question.",
)
"""Rules for answers of any kind. Which of them help depends on the LM and on the passages."""


def try_changes(
    run: base.Compilation, noun: str, changes: Iterable[str], rewrite: Callable[[str, type[dspy.Signature]], str]
) -> dspy.Module:
    """Try changes one after the other, each on top of those before it, and keep those that help.

    `rewrite` gives a signature's instructions by a change; empty if it leaves the signature alone.
    """
    best, score = run.student, run.evaluate(run.student, "as it is").score
    for change in changes:
        tried = best.deepcopy()
        for predictor in tried.predictors():
            signature = predictor.signature
            if text := rewrite(change, signature):
                predictor.signature = rename_signature(signature.with_instructions(text), signature.__name__)
        reached = run.evaluate(tried, f"{noun}: {change}").score
        if reached > score:
            best, score = tried, reached
    return best


@base.optimizer
class RuleSearch(base.Optimizer):
    """Adds written rules to the instructions, one after the other, and keeps those that help.

    It suits LMs that are too small to write instructions: people know what may help, and the validation
    set shows what does. A rule goes to all predictors at once, in one evaluation.
    """

    name: ClassVar[str] = "rule-search"
    about: ClassVar[str] = "written rules added to the instructions, those kept that help"

    train_examples: PositiveInt = 1
    """Not used by this optimizer."""
    rules: tuple[str, ...] = ANSWER_RULES
    """Sentences to try one after the other, each together with earlier ones that helped."""
    outputs: tuple[str, ...] = ("answer",)
    """Output fields; rules go to the predictors that write one of these."""

    def check(self, request: base.CompileRequest) -> None:
        outputs = self.outputs
        written = {name for p in request.student.predictors() for name in p.signature.output_fields}
        if not self.rules:
            raise InputError("no rule is given", "Give some: rules")
        if not written & set(outputs):
            raise InputError(
                f"nothing that is compiled writes {' or '.join(outputs)}",
                f"Name other fields with outputs: {', '.join(sorted(written))}",
            )

    def planned_runs(self, train: int, validation: int) -> int:
        return (1 + len(self.rules)) * validation

    def compile(self, run: base.Compilation) -> dspy.Module:
        def add_rule(rule: str, signature: type[dspy.Signature]) -> str:
            written = signature.output_fields.keys() & set(self.outputs)
            return f"{signature.instructions}\n{rule}" if written else ""

        return try_changes(run, "rule", self.rules, add_rule)


@base.optimizer
class InstructionSearch(base.Optimizer):
    """Puts written instructions in the place of the program's own, and keeps those that help.

    A candidate has instructions for one or several signatures, and takes one evaluation. Instructions for
    signatures that the program lacks are ignored, so that several programs can share candidates.
    """

    name: ClassVar[str] = "instruction-search"
    about: ClassVar[str] = "written instructions in the place of the program's own, those kept that help"

    train_examples: PositiveInt = 1
    """Not used by this optimizer."""
    instructions: Mapping[str, Mapping[str, str]] = {}
    """Candidates by a name of your own; each holds instructions by the names of signatures."""

    def check(self, request: base.CompileRequest) -> None:
        if not self.instructions:
            raise InputError("no instructions are given", "Give some: instructions, by candidate and signature")
        own = {predictor.signature.__name__ for predictor in request.student.predictors()}
        for name, candidate in self.instructions.items():
            if unknown := set(candidate) - own - all_signatures().keys():
                raise InputError(
                    f"candidate '{name}' has instructions for {', '.join(sorted(unknown))}, which is no signature",
                    f"The program's are {', '.join(sorted(own))}",
                )
            if not own & set(candidate):
                raise InputError(
                    f"candidate '{name}' has instructions for no signature of what is compiled",
                    f"These are {', '.join(sorted(own))}",
                )

    def planned_runs(self, train: int, validation: int) -> int:
        return (1 + len(self.instructions)) * validation

    def compile(self, run: base.Compilation) -> dspy.Module:
        def replace(name: str, signature: type[dspy.Signature]) -> str:
            return " ".join(self.instructions[name].get(signature.__name__, "").split())

        return try_changes(run, "instructions", self.instructions, replace)
