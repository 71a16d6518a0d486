"""The LM type classifier as a target of its own, on labelled questions."""

from __future__ import annotations

import dspy

from typedrag.errors import InputError
from typedrag.metrics import Metric, QuestionTypeMatch
from typedrag.optimizers.compile.targets.modules import transfer
from typedrag.optimizers.compile.targets.target import Target, needed, of_kind
from typedrag.optimizers.compile.teleprompters.focus import unfrozen
from typedrag.programs import Options, Program, TypedRAG
from typedrag.programs.artifact.state import named_predictors
from typedrag.programs.typed_rag.type_classifiers import LMTypeClassifier


class TypeClassifierTarget(Target):
    """The module that asks the LM for a question's type."""

    name = "type-classifier-alone"
    about = "the type classifier that asks the LM: alone, by labelled question types"
    datasets = ("nf-cats", "sample", "file")
    needs_program = False

    def student(self, program: Program | None = None) -> dspy.Module:
        """A new classifier, or that of a program whose questions the LM classifies; see `Target.student`."""
        if program and (theirs := _asking(_checked(program))):
            return unfrozen(theirs.deepcopy())
        return LMTypeClassifier(program.options if program else Options())

    def base(self, program: Program) -> dspy.Module:
        """The program's own type classifier, whatever its make."""
        return _checked(program).classifier

    def metric(self) -> Metric:
        """Whether the type is right."""
        return QuestionTypeMatch()

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The program with this classifier, which is always asked unless a cascade of the program asks it.

        See `Target.put_back`.
        """
        program = _checked(needed(program, self.name))
        classifier = of_kind(compiled, LMTypeClassifier, self.name)
        make = program.options.type_classifier if _asking(program) else "lm"
        options = program.options.model_copy(update={"type_classifier": make})
        made = type(program)(program.retriever, program.reranker, options)
        transfer(program, made, [name for name in named_predictors(made) if name in named_predictors(program)])
        asking = _asking(made)
        assert asking is not None, "the options say so"
        transfer(classifier, asking, list(named_predictors(classifier)))
        return made


def _checked(program: Program) -> TypedRAG:
    if not isinstance(program, TypedRAG):
        raise InputError(f"program '{program.name}' has no type classifier", "Use typed_rag")
    return program


def _asking(program: Program) -> LMTypeClassifier | None:
    """The part of a program's type classifier that asks the LM, if it has such a part."""
    parts = program.named_sub_modules(LMTypeClassifier)
    return next((module for _, module in parts), None)
