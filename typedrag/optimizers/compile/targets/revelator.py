"""The roles of HANRAG's revelator as targets of their own, each with labels made for it (HANRAG, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dspy
from pydantic import TypeAdapter, ValidationError

from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.core.records import Passage
from typedrag.datasets import REVELATOR
from typedrag.metrics import LabelMatch, Metric
from typedrag.metrics.labels import QueryMatch
from typedrag.optimizers.compile.targets.parts import PartTarget
from typedrag.programs import HANRAG, Options, Program
from typedrag.programs.hanrag import REVELATOR_SIGNATURES, RevelatorModule
from typedrag.signatures.fields import AS_ASKED_FOR, number_passages


class RevelatorTarget(PartTarget):
    """One role of the revelator."""

    datasets = (REVELATOR,)
    program, kind = HANRAG, RevelatorModule

    def __init__(self, role: RevelatorRole) -> None:
        self.role = role
        self.name = f"{role}-alone"
        self.about = f"HANRAG's {role}: alone, by the revelator's training set"

    def new(self, options: Options) -> RevelatorModule:
        return RevelatorModule(self.role, options)

    def checked(self, program: Program) -> Program:
        if not isinstance(program, HANRAG) or self.role not in program.revelator():
            raise InputError(f"program '{program.name}', with these options, has no {self.role}", "Use hanrag")
        return program

    def part(self, program: Program) -> dspy.Module:
        return program.revelator()[self.role]

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The row in the types of the role's signature, if it belongs to the role."""
        return (typed_example(self.role, example),) if example.subset == self.role else ()

    def metric(self) -> Metric:
        return metric_of(self.role)


def metric_of(role: RevelatorRole) -> Metric:
    if role is RevelatorRole.ROUTER:
        definitions = {r.value: f"a question that {r.definition}, such as «{r.example}»" for r in Route}
        return LabelMatch(field="route", definitions=definitions)
    if role is RevelatorRole.RELEVANCE:
        return LabelMatch(field="relevant")
    if role is RevelatorRole.ENDING:
        return LabelMatch(field="ending")
    return QueryMatch(field="query" if role is RevelatorRole.REFINER else "sub_queries")


def typed_example(role: RevelatorRole, example: dspy.Example, options: Options | None = None) -> dspy.Example:
    """A row of the revelator's training set with its values in the types of the role's signature.

    Its passage is cut to the options' `passage_words`.
    """
    options = options or Options()
    values: dict[str, Any] = {}
    for name, field in REVELATOR_SIGNATURES[role].fields.items():
        value = example[name]
        if name == "passage":
            [values[name]] = number_passages([Passage("", value["text"], value["title"])], options.passage_words)
        else:
            values[name] = _typed(value, name, field.annotation, role, example)
    others = {name: example[name] for name in ("id", "part", "origin")}
    return dspy.Example(**others, **values).with_inputs(*REVELATOR_SIGNATURES[role].input_fields)


def _typed(value: Any, name: str, annotation: Any, role: RevelatorRole, example: dspy.Example) -> Any:
    try:
        return TypeAdapter(annotation).validate_python(value, context=AS_ASKED_FOR)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise InputError(
            f"row '{example.id}' has a {name} that the {role} does not write ({why})", "Mend the row, or leave it out"
        ) from None
