"""Modules that write queries as targets of their own: they decompose and search, and nobody answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dspy

from typedrag.metrics import Metric, Rewrite
from typedrag.optimizers.compile.targets.modules import ProgramTarget
from typedrag.optimizers.compile.targets.target import needed
from typedrag.optimizers.compile.teleprompters.focus import Focused, silence
from typedrag.programs import Program
from typedrag.signatures.fields import Citations
from typedrag.signatures.roles import role_of

_NOTHING = {"answered": True, "answer": "", "citations": Citations([])}


class SearchTarget(ProgramTarget):
    """Modules that write queries, scored by the recall of what they send.

    The student is the program itself, whose predictors that would write an answer write nothing: it
    classifies, decomposes and searches as it always does, at the cost of one LM call a question.
    """

    datasets = ("antique", "trec-dl-nf", "wikipassageqa", "researchy-questions", "sample", "file")

    def __init__(self, modules: Sequence[str], name: str) -> None:
        super().__init__(modules)
        self.name = name
        self.about = f"{self.about}: alone, by the labelled passages that are found"

    def student(self, program: Program | None = None) -> dspy.Module:
        """The program without answers, of which only these modules are seen; see `Target.student`."""
        program = needed(program, self.name)
        return Focused(silence(program, _writes, _NOTHING), self.predictors(program))

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The example, if it has labelled passages and its question reaches the modules."""
        return super().cases(example) if example.get("passage_ids") else ()

    def metric(self) -> Metric:
        """Retrieval recall of the queries."""
        return Rewrite()


def _writes(signature: type[dspy.Signature]) -> bool:
    role = role_of(signature)
    return role is not None and role.writes
