"""What a predictor does in its program, declared with its signature: feedback and compiling depend on it.

It is kept with the output fields, since compiling makes other signatures of them, with other instructions or types.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import dspy

S = TypeVar("S", bound=type[dspy.Signature])
_ROLE, _MODULE = "typedrag_role", "typedrag_module"


class Role(StrEnum):
    """What a predictor does in a program; feedback depends on it.

    Example:
        >>> [role.value for role in Role if role.writes]
        ['answerer', 'combiner', 'teller']
    """

    CLASSIFIER = "classifier"
    """Names what a question is."""
    SEARCHER = "searcher"
    """Writes what is searched for: sub-queries, keywords, items, sides."""
    ANSWERER = "answerer"
    """Writes an answer, or a part of one, from passages."""
    COMBINER = "combiner"
    """Writes an answer out of several."""
    TELLER = "teller"
    """Writes an answer from what the LM knows."""
    JUDGE = "judge"
    """Says something about texts."""

    @property
    def writes(self) -> bool:
        """Whether its output is an answer or a part of one."""
        return self in (Role.ANSWERER, Role.COMBINER, Role.TELLER)


_USUAL = {
    Role.CLASSIFIER: "classifier",
    Role.SEARCHER: "searcher",
    Role.ANSWERER: "answer",
    Role.COMBINER: "sub-answer-combiner",
    Role.TELLER: "answer-without-passages",
    Role.JUDGE: "judge",
}
"""The modules that predictors are compiled as where their signatures name none."""


def plays(role: Role | None, module: str | None = None) -> Callable[[S], S]:
    """Class decorator: declare what predictors of a signature do.

    Args:
        role: What they do; None if feedback does not depend on it.
        module: What users call them when they compile them; by default the usual one of the role, and none if
            it is empty.

    Example:
        >>> @plays(Role.SEARCHER, "synonyms")
        ... class WriteSynonyms(dspy.Signature):
        ...     question: str = dspy.InputField()
        ...     synonyms: list[str] = dspy.OutputField()
        >>> compiled = WriteSynonyms.with_instructions("Write rare ones.")
        >>> role_of(compiled), module_of(compiled)
        (<Role.SEARCHER: 'searcher'>, 'synonyms')
    """
    name = module if module is not None else _USUAL[role] if role else ""

    def declare(signature: S) -> S:
        for field in signature.output_fields.values():
            # a new dict: subclasses share that of the fields they inherit
            field.json_schema_extra = {**field.json_schema_extra, _ROLE: role, _MODULE: name}
        return signature

    return declare


def role_of(signature: type[dspy.Signature]) -> Role | None:
    """What a predictor of this signature does; None if that is not declared."""
    role = _declared(signature, _ROLE)
    return Role(role) if role else None


def module_of(signature: type[dspy.Signature]) -> str:
    """The module that a predictor of this signature is compiled as; empty if none."""
    return _declared(signature, _MODULE) or ""


def _declared(signature: type[dspy.Signature], key: str) -> str | None:
    # reasoning put before the outputs declares nothing
    said = (field.json_schema_extra.get(key) for field in signature.output_fields.values())
    return next((value for value in said if value), None)
