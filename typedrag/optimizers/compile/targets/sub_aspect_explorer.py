"""RichRAG's sub-aspect explorer as a target of its own, on questions with labelled sub-aspects."""

from __future__ import annotations

import dspy
from pydantic import ValidationError

from typedrag.datasets import Dataset
from typedrag.errors import InputError
from typedrag.metrics import Metric
from typedrag.metrics.queries import QueryMatch
from typedrag.optimizers.compile.targets.modules import transfer
from typedrag.optimizers.compile.targets.target import Target, needed, of_kind
from typedrag.optimizers.compile.teleprompters.focus import unfrozen
from typedrag.programs import Options, Program, RichRAG
from typedrag.programs.artifact.state import named_predictors
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.signatures.fields import AS_ASKED_FOR, SubAspects


class SubAspectExplorerTarget(Target):
    """RichRAG's explorer, on what its paper fine-tunes it with (RichRAG, section 3.2)."""

    name = "sub-aspect-explorer-alone"
    about = "RichRAG's sub-aspect explorer: alone, by labelled sub-aspects"
    datasets = ("wikiasp",)
    needs_program = False

    def student(self, program: Program | None = None) -> dspy.Module:
        """That of a program, or a new one; see `Target.student`."""
        if program is None:
            return SubAspectExplorer(Options())
        return unfrozen(_of(program).deepcopy())

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Questions with their `sub_aspects`, as many as an explorer may name; see `Target.examples`."""
        self.check_dataset(dataset)
        return [labelled for e in dataset.split(split) if (labelled := _labelled(e))]

    def metric(self) -> Metric:
        """How near the sub-aspects are to the labelled ones."""
        return QueryMatch(field="sub_aspects")

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """A copy of the program with the compiled explorer; see `Target.put_back`."""
        program = needed(program, self.name)
        explorer = of_kind(compiled, SubAspectExplorer, self.name)
        made = unfrozen(program.deepcopy())
        transfer(explorer, _of(made), list(named_predictors(explorer)))
        return made


def _of(program: Program) -> SubAspectExplorer:
    if not isinstance(program, RichRAG):
        raise InputError(f"program '{program.name}' has no sub-aspect explorer", "Use richrag")
    return program.strategy.explorer


def _labelled(example: dspy.Example) -> dspy.Example | None:
    """The example with its labels in the type of the signature; None if they do not fit, such as more than seven."""
    # cut to seven, the rest would count as wrong, though wanted
    try:
        return example.copy(sub_aspects=SubAspects.model_validate(list(example.aspects), context=AS_ASKED_FOR))
    except ValidationError:
        return None
