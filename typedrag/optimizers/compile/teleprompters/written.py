"""Optimizers that choose among instructions that people wrote."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import ClassVar

import dspy

from typedrag import signatures
from typedrag.errors import InputError
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, UntrainedSettings, optimizer
from typedrag.programs.artifact.state import renamed

Changes = Mapping[str, Callable[[dspy.Module], dspy.Module]]
ANSWER_RULES = (
    "Begin with the direct answer to the question, then give its reasons, details and examples.",
    "Write two or three full paragraphs.",
    "Leave out what does not bear on the question.",
    "Where the passages leave a part of the question open, answer it from what you know.",
)
"""Rules for answers of any kind. Which of them help depends on the LM and on the passages."""


class KeptChanges(Optimizer):
    """Tries changes one after the other, each on top of those before it, and keeps those that help."""

    @abstractmethod
    def changes(self) -> Changes:
        """The changes to try, by the candidate's origin in words."""

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base and each change on the validation set."""
        _, validation = self.sizes(request)
        return CostEstimate.of(request, (1 + len(self.changes())) * validation)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with the changes that helped."""
        best, score = run.student, run.evaluate(run.student, "as it is").score
        for how, change in self.changes().items():
            tried = change(best)
            reached = run.evaluate(tried, how).score
            if reached > score:
                best, score = tried, reached
        return best


class RuleSearchSettings(UntrainedSettings):
    """Options of `rule-search`."""

    rules: tuple[str, ...] = ANSWER_RULES
    """Sentences to try one after the other, each together with earlier ones that helped."""
    outputs: tuple[str, ...] = ("answer",)
    """Output fields; rules go to the predictors that write one of these."""


@optimizer
class RuleSearch(KeptChanges):
    """Adds written rules to the instructions, one after the other, and keeps those that help.

    It suits LMs that are too small to write instructions: people know what may help, and the validation
    set shows what does. A rule goes to all predictors at once, in one evaluation.
    """

    name: ClassVar[str] = "rule-search"
    about: ClassVar[str] = "written rules added to the instructions, those kept that help"
    Settings = RuleSearchSettings
    settings: RuleSearchSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse a request without rules, or without a predictor that they would be added to."""
        if not self.settings.rules:
            raise InputError("no rule is given", "Give some: rules")
        if not any(_writes(p, self.settings.outputs) for p in request.student.predictors()):
            written = sorted({name for p in request.student.predictors() for name in p.signature.output_fields})
            raise InputError(
                f"nothing that is compiled writes {' or '.join(self.settings.outputs)}",
                f"Name other fields with outputs: {', '.join(written)}",
            )

    def changes(self) -> Changes:
        """The rules; each goes to the predictors that write one of the outputs."""
        outputs = self.settings.outputs
        return {f"rule: {rule}": partial(with_rule, rule=rule, outputs=outputs) for rule in self.settings.rules}


def with_rule(program: dspy.Module, rule: str, outputs: Collection[str]) -> dspy.Module:
    """A copy of a program with a rule appended to the instructions of predictors that write one of these fields.

    Example:
        >>> program = with_rule(dspy.Predict("question -> answer"), "Be brief.", ["answer"])
        >>> program.signature.instructions.splitlines()[-1]
        'Be brief.'
    """
    changed = program.deepcopy()
    for predictor in changed.predictors():
        if _writes(predictor, outputs):
            _tell(predictor, f"{predictor.signature.instructions}\n{rule}")
    return changed


class InstructionSearchSettings(UntrainedSettings):
    """Options of `instruction-search`."""

    instructions: Mapping[str, Mapping[str, str]] = {}
    """Candidates by a name of your own; each holds instructions by the names of signatures."""


@optimizer
class InstructionSearch(KeptChanges):
    """Puts written instructions in the place of the program's own, and keeps those that help.

    A candidate has instructions for one or several signatures, and takes one evaluation. Instructions for
    signatures that the program lacks are ignored, so that several programs can share candidates.
    """

    name: ClassVar[str] = "instruction-search"
    about: ClassVar[str] = "written instructions in the place of the program's own, those kept that help"
    Settings = InstructionSearchSettings
    settings: InstructionSearchSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse a request without instructions, or with a candidate for none of the program's signatures."""
        if not self.settings.instructions:
            raise InputError("no instructions are given", "Give some: instructions, by candidate and signature")
        own = {predictor.signature.__name__ for predictor in request.student.predictors()}
        for name, candidate in self.settings.instructions.items():
            if unknown := set(candidate) - own - set(signatures.__all__):
                raise InputError(
                    f"candidate '{name}' has instructions for {', '.join(sorted(unknown))}, which is no signature",
                    f"The program's are {', '.join(sorted(own))}",
                )
            if not own & set(candidate):
                raise InputError(
                    f"candidate '{name}' has instructions for no signature of what is compiled",
                    f"These are {', '.join(sorted(own))}",
                )

    def changes(self) -> Changes:
        """The candidates."""
        tried = self.settings.instructions.items()
        return {f"instructions: {name}": partial(with_instructions, instructions=texts) for name, texts in tried}


def with_instructions(program: dspy.Module, instructions: Mapping[str, str]) -> dspy.Module:
    """A copy of a program with other instructions, given by the names of their signatures.

    Example:
        >>> program = with_instructions(dspy.Predict(signatures.AnswerReason), {"AnswerReason": "Say why."})
        >>> program.signature.instructions
        'Say why.'
    """
    changed = program.deepcopy()
    for predictor in changed.predictors():
        if text := instructions.get(predictor.signature.__name__):
            _tell(predictor, " ".join(text.split()))
    return changed


def _tell(predictor: dspy.Predict, instructions: str) -> None:
    signature = predictor.signature
    predictor.signature = renamed(signature.with_instructions(instructions), signature.__name__)


def _writes(predictor: dspy.Predict, outputs: Collection[str]) -> bool:
    return any(name in predictor.signature.output_fields for name in outputs)
