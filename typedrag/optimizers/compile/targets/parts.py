"""Modules of a program as targets of their own, each with labels made for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import dspy
from pydantic import ValidationError

from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope
from typedrag.datasets import Dataset
from typedrag.metrics import LabelMatch, Metric, QuestionTypeMatch
from typedrag.metrics.labels import QueryMatch
from typedrag.optimizers.compile.targets.target import Target, needed, of_kind, transfer, unfrozen
from typedrag.programs import Options, PreQRAG, Program, RichRAG, TypedRAG
from typedrag.programs.preqrag import LMScopeClassifier
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.programs.typed_rag.type_classifiers import LMTypeClassifier
from typedrag.signatures.fields import AS_ASKED_FOR, SubAspects


class PartTarget(Target):
    """A module of a program, alone.

    Attributes:
        program: The class of programs with the module.
        kind: The module's class.
        lack: The error's words for other programs.
    """

    program: type[Program]
    kind: type[dspy.Module]
    lack: str

    def student(self, program: Program | None = None) -> dspy.Module:
        """A copy of the program's module; a new one without a program, or if the program's is of another class."""
        if program and (own := self.part(self.checked(program))):
            return unfrozen(own)
        return self.new(program.options if program else Options())

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        copy = self.asking(self.checked(needed(program, self.name)))
        part = self.part(copy)
        assert part is not None, "it is asked"
        transfer(of_kind(compiled, self.kind, self.name), part)
        return copy

    def checked(self, program: Program) -> Program:
        if not isinstance(program, self.program):
            raise InputError(f"program '{program.name}' {self.lack}", f"Use {self.program.name}")
        return program

    def part(self, program: Program) -> dspy.Module | None:
        """The program's module; None if it is of another class."""
        return next((module for _, module in program.named_sub_modules(self.kind)), None)

    def new(self, options: Options) -> dspy.Module:
        return self.kind(options)

    def asking(self, program: Program) -> Program:
        return unfrozen(program)


class ClassifierTarget(PartTarget):
    """A classifier that asks the LM; a program may have another kind of classifier."""

    def tested(self, module: dspy.Module) -> dspy.Module:
        """The program's own classifier, of any class."""
        classifier: dspy.Module = self.checked(needed(module, self.name)).classifier
        return classifier

    @abstractmethod
    def options_asking(self, options: Options) -> Options:
        """The options with which a program classifies by the LM."""

    def asking(self, program: Program) -> Program:
        """A copy of the program that classifies by the LM; options change only if it does not do so already."""
        if self.part(program):
            return unfrozen(program)
        copy = type(program)(program.retriever, program.reranker, self.options_asking(program.options))
        transfer(program, copy)
        return copy


class TypeClassifierTarget(ClassifierTarget):
    """The module that asks the LM for a question's type, on labelled questions."""

    name = "type-classifier-alone"
    about = "the type classifier that asks the LM: alone, by labelled question types"
    datasets = ("nf-cats", "sample", "file")
    program, kind, lack = TypedRAG, LMTypeClassifier, "has no type classifier"

    def metric(self) -> Metric:
        return QuestionTypeMatch()

    def options_asking(self, options: Options) -> Options:
        return options.model_copy(update={"type_classifier": "lm"})


class ScopeClassifierTarget(ClassifierTarget):
    """PreQRAG's classifier that asks the LM, on questions whose subset is their scope (paper 3, table 1)."""

    name = "scope-classifier-alone"
    about = "PreQRAG's classifier that asks the LM: alone, by questions that datasets build preqrag has made"
    datasets = ("file",)
    program, kind, lack = PreQRAG, LMScopeClassifier, "does not classify by documents"

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        self.check_dataset(dataset)
        return labelled_scopes(dataset, split)

    def metric(self) -> Metric:
        return LabelMatch(field="scope")

    def options_asking(self, options: Options) -> Options:
        return options.model_copy(update={"preqrag": options.preqrag.model_copy(update={"classifier": "lm"})})


def labelled_scopes(dataset: Dataset, split: str = "all") -> list[dspy.Example]:
    """The examples whose subset is a scope, with the subset as their `scope`."""
    scopes = {scope.value for scope in DocumentScope}
    examples = [
        dspy.Example(**e.toDict(), scope=e.subset).with_inputs("question")
        for e in dataset.split(split)
        if e.get("subset") in scopes
    ]
    if not examples:
        raise InputError(
            f"{dataset.source} has no question of subset {' or '.join(sorted(scopes))}",
            "Make some: typedrag datasets build preqrag",
        )
    return examples


class SubAspectExplorerTarget(PartTarget):
    """RichRAG's explorer, on the data that its paper fine-tunes it with (RichRAG, section 3.2)."""

    name = "sub-aspect-explorer-alone"
    about = "RichRAG's sub-aspect explorer: alone, by labelled sub-aspects"
    datasets = ("wikiasp",)
    program, kind, lack = RichRAG, SubAspectExplorer, "has no sub-aspect explorer"

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """Yield the question with its `sub_aspects`, unless they are more than an explorer may name."""
        # if they were cut to seven, right sub-aspects among the others would count as wrong
        try:
            aspects = SubAspects.model_validate(list(example.aspects), context=AS_ASKED_FOR)
        except ValidationError:
            return
        yield example.copy(sub_aspects=aspects)

    def metric(self) -> Metric:
        return QueryMatch(field="sub_aspects")
