"""The role of a predictor in its program, declared with its signature: feedback and compiling depend on it.

It is stored with the output fields, since compiling derives signatures with other instructions or types from them.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import dspy

S = TypeVar("S", bound=type[dspy.Signature])
_ROLE, _MODULE = "typedrag_role", "typedrag_module"


class Role(StrEnum):
    """A predictor's work in a program; feedback depends on it.

    Example:
        >>> [role.value for role in Role if role.writes]
        ['answerer', 'combiner', 'teller']
    """

    CLASSIFIER = "classifier"
    """Names the class of a question."""
    SEARCHER = "searcher"
    """Writes text to search for: sub-queries, keywords, items, sides."""
    ANSWERER = "answerer"
    """Writes an answer, or a part of one, from passages."""
    COMBINER = "combiner"
    """Writes one answer from several."""
    TELLER = "teller"
    """Writes an answer from the LM's own knowledge."""
    JUDGE = "judge"
    """Judges texts."""

    @property
    def writes(self) -> bool:
        """True if its output is an answer or a part of one."""
        return self in (Role.ANSWERER, Role.COMBINER, Role.TELLER)


_USUAL = {
    Role.CLASSIFIER: "classifier",
    Role.SEARCHER: "searcher",
    Role.ANSWERER: "answer",
    Role.COMBINER: "sub-answer-combiner",
    Role.TELLER: "answer-without-passages",
    Role.JUDGE: "judge",
}
"""The names that predictors are compiled under if their signatures name none."""


def plays(role: Role | None, module: str | None = None) -> Callable[[S], S]:
    """Class decorator: declare the role of a signature's predictors.

    Args:
        role: Their role; None if feedback does not depend on it.
        module: Users' name for them when they compile them; by default the role's usual one; an empty name leaves them
            out.

    Example:
        >>> @plays(Role.SEARCHER, "synonyms")
        ... class WriteSynonyms(dspy.Signature):
        ...     question: str = dspy.InputField()
        ...     synonyms: list[str] = dspy.OutputField()
        >>> compiled = WriteSynonyms.with_instructions("Write rare ones.")
        >>> signature_role(compiled), module_name(compiled)
        (<Role.SEARCHER: 'searcher'>, 'synonyms')
    """
    name = module if module is not None else _USUAL[role] if role else ""

    def declare(signature: S) -> S:
        for field in signature.output_fields.values():
            # a new dict: subclasses share that of their inherited fields
            field.json_schema_extra = {**field.json_schema_extra, _ROLE: role, _MODULE: name}
        return signature

    return declare


def signature_role(signature: type[dspy.Signature]) -> Role | None:
    """The role of a predictor with this signature; None if none is declared."""
    # a reasoning field put before the outputs declares nothing
    declared = (field.json_schema_extra.get(_ROLE) for field in signature.output_fields.values())
    return next((Role(role) for role in declared if role), None)


def module_name(signature: type[dspy.Signature]) -> str:
    """The name that a predictor with this signature is compiled under; empty if none."""
    declared = (field.json_schema_extra.get(_MODULE) for field in signature.output_fields.values())
    return next((str(name) for name in declared if name), "")
