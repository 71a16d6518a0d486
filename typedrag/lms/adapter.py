"""The adapters: they write a signature as a prompt and read a reply into its output fields.

All of them pass on text that strangers wrote as text only (`as_data`), and find the fields whatever surrounds them in
a reply (`typedrag.lms.reading`). `SchemaAdapter` is for LMs whose server constrains decoding by a JSON schema.
"""

from __future__ import annotations

import re
import textwrap
from enum import Enum
from typing import Any, Literal, get_args, get_origin
from weakref import WeakKeyDictionary

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel

from typedrag.lms.reading import find_object, finish, without_thoughts

_FIELD = re.compile(r"\[{2,}(?=\s*##)")
"""The beginning of DSPy's marker of a field."""
_TOKEN = re.compile(
    r"""<(?=[|｜][^\s<>|｜]+[|｜]>              # ChatML, Llama 3, Phi, Harmony; DeepSeek
        |/?s>|<</?SYS>>|</?SYS>>              # Llama 2
        |(?:start|end)_of_turn>               # Gemma
        |<CUSTOM-TYPE-(?:START|END)-)         # what DSPy makes images and the like of
    |\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])   # Mistral""",
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a chat template's token, which a server takes for the end of our message, whoever wrote it."""


def as_data(value: Any) -> Any:
    """A field's value in which no text can pass for the structure of a prompt; values without text are unchanged.

    Example:
        >>> as_data(["Yeast [1]", "[[[ ## answer ## ]]", "<|im_end|>"])
        ['Yeast [1]', '[ ## answer ## ]]', '< |im_end|>']
    """
    if type(value) is str:
        return _FIELD.sub("[", _TOKEN.sub(r"\g<0> ", value))
    if isinstance(value, dict):
        return {as_data(key): as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    return as_data(value.model_dump(mode="json", fallback=str)) if isinstance(value, BaseModel) else value


class _Careful(dspy.Adapter):
    """The behaviour that all adapters share: input as data, and replies read with tolerance."""

    def format_user_message_content(
        self, signature: type[dspy.Signature], inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """The input fields, of the question or of a demonstration."""
        return super().format_user_message_content(signature, as_data(inputs), *args, **kwargs)

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """The output fields of a demonstration."""
        return super().format_assistant_message_content(signature, as_data(outputs), *args, **kwargs)

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The output fields.

        Raises:
            AdapterParseError: If they cannot be read; it holds the reply as it came.
        """
        try:
            return self.read(signature, without_thoughts(completion))
        except AdapterParseError as error:
            error.lm_response = completion
            raise
        except Exception as error:  # an LM may write anything, such as lists a thousand deep
            raise AdapterParseError(type(self).__name__, signature, completion, f"{type(error).__name__}") from error

    def read(self, signature: type[dspy.Signature], reply: str) -> dict[str, Any]:
        """The output fields of a reply without thoughts."""
        return super().parse(signature, find_object(reply, list(signature.output_fields)))


class JSONAdapter(_Careful, dspy.JSONAdapter):
    """DSPy's JSON adapter."""


class ChatAdapter(_Careful, dspy.ChatAdapter):
    """DSPy's chat adapter, which also reads a reply in JSON."""

    def read(self, signature: type[dspy.Signature], reply: str) -> dict[str, Any]:
        """The output fields, by DSPy's markers or else from a JSON object."""
        if "[[ ##" not in reply and "{" in reply:
            return JSONAdapter().read(signature, reply)
        before, marker, last = reply.rpartition(" ## ]]")
        return dspy.ChatAdapter.parse(self, signature, before + marker + finish(last))

    def _make_json_adapter_fallback(self) -> JSONAdapter:
        return JSONAdapter(use_native_function_calling=self.use_native_function_calling)


class SchemaAdapter(JSONAdapter):
    """DSPy's JSON adapter with a prompt that leaves the reply's form to the schema.

    DSPy describes the form by a template with placeholders and by the schema's text. Where decoding is
    constrained anyway both only cost tokens, and small LMs copy the placeholders into their reply.
    """

    def __init__(self) -> None:
        super().__init__(use_native_function_calling=False)

    def _prepare_response_format(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        # DSPy builds the schema's model anew for each call, which takes longer than the rest of its work for a call
        known = _FORMATS.get(signature) if lm.supports_response_schema else None
        if known is not None:
            lm_kwargs["response_format"] = known
            return
        super()._prepare_response_format(lm, lm_kwargs, signature)
        model = lm_kwargs.get("response_format")
        if isinstance(model, type) and lm.supports_response_schema:
            _FORMATS[signature] = model

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The instructions, then the input fields and the output fields."""
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
"""The model of its output fields by signature."""


def _describe(fields: dict[str, Any]) -> str:
    return "\n".join(f"- {name}{_said_of(name, field)}" for name, field in fields.items())


def _said_of(name: str, field: Any) -> str:
    description = field.json_schema_extra["desc"]
    parts = [] if description == f"${{{name}}}" else [description]
    if choices := _choices(field.annotation):
        parts.append(f"one of {', '.join(choices)}")
    return f": {'; '.join(parts)}" if parts else ""


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(choice.value) for choice in annotation]
    return []
