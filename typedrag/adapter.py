"""The adapter for LMs whose server constrains decoding by a JSON schema."""

from __future__ import annotations

import textwrap
from enum import Enum
from typing import Any, Literal, get_args, get_origin
from weakref import WeakKeyDictionary

import dspy
from pydantic import BaseModel


class SchemaAdapter(dspy.JSONAdapter):
    """DSPy's JSON adapter with a prompt that leaves the form of the reply to the schema.

    DSPy describes the form as a template with placeholders and the schema's text. Where decoding is
    constrained anyway these only cost tokens, and small LMs copy the placeholders into their reply.
    """

    def __init__(self) -> None:
        super().__init__(use_native_function_calling=False)

    def _prepare_response_format(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        # DSPy builds the schema's model anew for each call, which takes longer than all else it does for one
        known = _FORMATS.get(signature) if lm.supports_response_schema else None
        if known is not None:
            lm_kwargs["response_format"] = known
            return
        super()._prepare_response_format(lm, lm_kwargs, signature)
        made = lm_kwargs.get("response_format")
        if isinstance(made, type) and lm.supports_response_schema:
            _FORMATS[signature] = made

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The instructions, then what is given and what is wanted."""
        return "\n\n".join(
            (
                textwrap.dedent(signature.instructions),
                f"You are given:\n{_describe(signature.input_fields)}",
                f"You reply with a JSON object of:\n{_describe(signature.output_fields)}",
            )
        )

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """A reminder of the fields, after the inputs."""
        return f"Reply with the JSON object of {', '.join(signature.output_fields)}."


_FORMATS: WeakKeyDictionary[type[dspy.Signature], type[BaseModel]] = WeakKeyDictionary()
"""By signature, the model of its output fields."""


def _describe(fields: dict[str, Any]) -> str:
    return "\n".join(f"- {name}{_said_of(name, field)}" for name, field in fields.items())


def _said_of(name: str, field: Any) -> str:
    said = field.json_schema_extra["desc"]
    parts = [] if said == f"${{{name}}}" else [said]
    if choices := _choices(field.annotation):
        parts.append(f"one of {', '.join(choices)}")
    return f": {'; '.join(parts)}" if parts else ""


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(choice.value) for choice in annotation]
    return []
