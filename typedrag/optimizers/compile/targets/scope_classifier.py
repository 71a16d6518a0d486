"""The LM that says whether a question needs one document or several, as a target of its own."""

from __future__ import annotations

import dspy

from typedrag.datasets import Dataset
from typedrag.errors import InputError
from typedrag.metrics import LabelMatch, Metric
from typedrag.optimizers.compile.targets.modules import transfer
from typedrag.optimizers.compile.targets.target import Target, needed, of_kind
from typedrag.optimizers.compile.teleprompters.focus import unfrozen
from typedrag.programs import Options, PreQRAG, Program
from typedrag.programs.artifact.state import named_predictors
from typedrag.programs.preqrag.document_scopes import LMScopeClassifier
from typedrag.question_types import DocumentScope


class ScopeClassifierTarget(Target):
    """PreQRAG's classifier that asks the LM, on questions whose subset is their scope (paper 3, table 1)."""

    name = "scope-classifier-alone"
    about = "PreQRAG's classifier that asks the LM: alone, by questions that datasets build preqrag has made"
    datasets = ("file",)
    needs_program = False

    def student(self, program: Program | None = None) -> dspy.Module:
        """A new classifier, or that of a program whose questions the LM classifies; see `Target.student`."""
        if program is None:
            return LMScopeClassifier(Options())
        theirs = _checked(program).classifier
        if isinstance(theirs, LMScopeClassifier):
            return unfrozen(theirs.deepcopy())
        return LMScopeClassifier(program.options)

    def base(self, program: Program) -> dspy.Module:
        """The program's own classifier, whatever its make."""
        return _checked(program).classifier

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Questions with their scope; see `Target.examples`."""
        self.check_dataset(dataset)
        return labelled_scopes(dataset, split)

    def metric(self) -> Metric:
        """Whether the scope is right."""
        return LabelMatch(field="scope")

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The program with this classifier, asked as its options say, or always; see `Target.put_back`."""
        program = _checked(needed(program, self.name))
        classifier = of_kind(compiled, LMScopeClassifier, self.name)
        ways = program.options.preqrag
        asks = ways if ways.classifier != "rule" else ways.model_copy(update={"classifier": "lm"})
        options = program.options.model_copy(update={"preqrag": asks})
        made = type(program)(program.retriever, program.reranker, options)
        transfer(program, made, [name for name in named_predictors(made) if name in named_predictors(program)])
        transfer(classifier, made.classifier, list(named_predictors(classifier)))
        return made


def _checked(program: Program) -> PreQRAG:
    if not isinstance(program, PreQRAG):
        raise InputError(f"program '{program.name}' does not classify by documents", "Use preqrag")
    return program


def labelled_scopes(dataset: Dataset, split: str = "all") -> list[dspy.Example]:
    """The examples whose subset is a scope, with it as their `scope`.

    Raises:
        InputError: If there is none, or no such split.
    """
    scopes = {scope.value for scope in DocumentScope}
    found = [
        dspy.Example(**e.toDict(), scope=e.subset).with_inputs("question")
        for e in dataset.split(split)
        if e.get("subset") in scopes
    ]
    if not found:
        raise InputError(
            f"{dataset.source} has no question of subset {' or '.join(sorted(scopes))}",
            "Make some: typedrag datasets build preqrag",
        )
    return found
