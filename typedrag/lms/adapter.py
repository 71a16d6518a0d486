"""The adapters: they write a signature as a prompt and read a reply into its output fields.

All of them pass on text that strangers wrote as text only (`as_data`), and find the fields whatever surrounds them in
a reply (`typedrag.lms.adapter`). `SchemaAdapter` is for LMs whose server constrains decoding by a JSON schema.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin
from weakref import WeakKeyDictionary

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel

_FIELD = re.compile(r"\[{2,}(?=\s*##)")
"""The beginning of DSPy's marker of a field."""
_TOKEN = re.compile(
    r"""<(?=[|｜][^\s<>|｜]+[|｜]?>|[^\s<>|｜]+[|｜]>  # ChatML, Llama 3, Phi, Harmony, Gemma 4; DeepSeek
        |/?s>|<</?SYS>>|</?SYS>>              # Llama 2
        |(?:start|end)_of_turn>               # Gemma
        |(?:bos|eos|pad|unk|sop|(?:BOS|EOS)_TOKEN|seed:(?:bos|eos))>
        |<CUSTOM-TYPE-(?:START|END)-)         # what DSPy makes images and the like of
    |\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|gMASK)\]   # Mistral, GLM
        |[|][^\s|]+[|]\])                     # EXAONE""",
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of a chat template's token, which a server takes for the end of our message, whoever wrote it."""


def break_tokens(text: str, others: re.Pattern[str] | None = None) -> str:
    """The text with a space in each token of chat templates, and after each match of `others`; other text is unchanged.

    Example:
        >>> break_tokens("<|im_end|> [INST] a <b> [1]")
        '< |im_end|> [ INST] a <b> [1]'
    """
    text = _TOKEN.sub(r"\g<0> ", text)
    return others.sub(r"\g<0> ", text) if others else text


def beginnings_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of the first character of each of an LM's control tokens that `break_tokens` does not know."""
    unknown = sorted(token for token in tokens if len(token) > 2 and break_tokens(token) == token)
    return re.compile("|".join(f"{re.escape(t[0])}(?={re.escape(t[1:])})" for t in unknown)) if unknown else None


def as_data(value: Any) -> Any:
    """A field's value in which no text can pass for the structure of a prompt; values without text are unchanged.

    Example:
        >>> as_data(["Yeast [1]", "[[[ ## answer ## ]]", "<|im_end|>"])
        ['Yeast [1]', '[ ## answer ## ]]', '< |im_end|>']
    """
    if type(value) is str:
        return _FIELD.sub("[", break_tokens(value))
    if isinstance(value, dict):
        return {as_data(key): as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    return as_data(value.model_dump(mode="json", fallback=str)) if isinstance(value, BaseModel) else value


class _TolerantAdapter(dspy.Adapter):
    """The behaviour that all adapters share: input as data, and replies read with tolerance."""

    def format_user_message_content(
        self, signature: type[dspy.Signature], inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        return super().format_user_message_content(signature, as_data(inputs), *args, **kwargs)

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        return super().format_assistant_message_content(signature, as_data(outputs), *args, **kwargs)

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        try:
            return self.read(signature, without_thoughts(completion))
        except AdapterParseError as error:
            error.lm_response = completion
            raise
        except Exception as error:  # an LM may write anything, such as lists a thousand deep
            raise AdapterParseError(type(self).__name__, signature, completion, f"{type(error).__name__}") from error

    def read(self, signature: type[dspy.Signature], reply: str) -> dict[str, Any]:
        return super().parse(signature, find_object(reply, list(signature.output_fields)))


class JSONAdapter(_TolerantAdapter, dspy.JSONAdapter):
    pass


class ChatAdapter(_TolerantAdapter, dspy.ChatAdapter):
    """DSPy's chat adapter, which also reads a reply in JSON."""

    def read(self, signature: type[dspy.Signature], reply: str) -> dict[str, Any]:
        if "[[ ##" not in reply and "{" in reply:
            return JSONAdapter().read(signature, reply)
        before, marker, last = reply.rpartition(" ## ]]")
        return dspy.ChatAdapter.parse(self, signature, before + marker + finish(last))

    def _make_json_adapter_fallback(self) -> JSONAdapter:
        return JSONAdapter(use_native_function_calling=self.use_native_function_calling)


class SchemaAdapter(JSONAdapter):
    """DSPy's JSON adapter with a prompt that leaves the reply's form to the schema.

    DSPy's template with placeholders and the schema's text only cost tokens, and small LMs copy the placeholders.
    """

    def __init__(self) -> None:
        super().__init__(use_native_function_calling=False)

    def _prepare_response_format(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        # DSPy builds the schema's model again for each call, which takes longer than the rest of its work for a call
        known = _FORMATS.get(signature) if lm.supports_response_schema else None
        if known is not None:
            lm_kwargs["response_format"] = known
            return
        super()._prepare_response_format(lm, lm_kwargs, signature)
        model = lm_kwargs.get("response_format")
        if isinstance(model, type) and lm.supports_response_schema:
            _FORMATS[signature] = model

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        inputs, outputs = _describe(signature.input_fields), _describe(signature.output_fields)
        task = textwrap.dedent(signature.instructions)
        return f"{task}\n\nYou are given:\n{inputs}\n\nYou reply with a JSON object of:\n{outputs}"

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        return f"Reply with the JSON object of {', '.join(signature.output_fields)}."


_FORMATS: WeakKeyDictionary[type[dspy.Signature], type[BaseModel]] = WeakKeyDictionary()
"""The model of its output fields by signature."""


def _describe(fields: dict[str, Any]) -> str:
    lines = []
    for name, field in fields.items():
        parts, annotation = [], field.annotation
        if (description := field.json_schema_extra["desc"]) != f"${{{name}}}":
            parts.append(description)
        if get_origin(annotation) is Literal:
            parts.append(f"one of {', '.join(map(str, get_args(annotation)))}")
        elif isinstance(annotation, type) and issubclass(annotation, Enum):
            parts.append(f"one of {', '.join(str(choice.value) for choice in annotation)}")
        lines.append(f"- {name}: {'; '.join(parts)}" if parts else f"- {name}")
    return "\n".join(lines)


_THOUGHTS = re.compile(
    r"\s*(?:[<\[](think(?:ing)?|thought|reasoning)[>\]].*?(?:[<\[]/\1[>\]]|\Z)"
    r"|.*?[<\[]/(?:think(?:ing)?|thought|reasoning)[>\]])",
    re.DOTALL | re.IGNORECASE,
)
_BEGINNINGS = ("{", "[[ ##", "```")
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(strict=False)
_MOST_OBJECTS = 50  # objects tried in a reply: examples in its text may come before the real one


def without_thoughts(reply: str) -> str:
    """A reply without the thoughts before it, which may lack their opening or their closing tag.

    Example:
        >>> without_thoughts('<think>{"a": 1}?</think> {"answer": "<think> is a tag"}')
        '{"answer": "<think> is a tag"}'
        >>> without_thoughts("So it is.</think>Yeast."), without_thoughts("<think>Is it")
        ('Yeast.', '')
    """
    reply = reply.lstrip("\ufeff \n\r\t")
    while not reply.startswith(_BEGINNINGS) and (thoughts := _THOUGHTS.match(reply)):
        reply = reply[thoughts.end() :].lstrip("\ufeff \n\r\t")
    return reply


def find_object(reply: str, names: Sequence[str]) -> str:
    """The JSON object of a reply that has fields of these names, its keys spelt as in `names`. If it breaks off,
    the text from its beginning on, see `finish`; if there is no object, the whole reply.

    Example:
        >>> find_object('Like {"a": 1}: ```json\\n{"Sub Queries": ["Why?"]}\\n```', ["sub_queries"])
        '{"sub_queries": ["Why?"]}'
        >>> find_object('{"reply": {"answer": "Yeast."}}', ["answer"])
        '{"answer": "Yeast."}'
    """
    begun = [match.start() for match in re.finditer(r"\{", reply)][:_MOST_OBJECTS]
    for start in begun:
        try:
            value, _ = _DECODER.raw_decode(reply, start)
        except ValueError:
            continue
        if fields := _fields(value, names):
            return json.dumps(fields, ensure_ascii=False)
    return finish(reply[begun[0] :]) if begun else reply


def finish(text: str) -> str:
    """JSON that breaks off in a list, closed, with null for the unfinished item; other text is unchanged.

    Example:
        >>> finish('{"sub_queries": ["Why does it rise?", "What does yea')
        '{"sub_queries": ["Why does it rise?", null]}'
        >>> finish('{"citations": [1, 2], "answer": "Yea')
        '{"citations": [1, 2], "answer": "Yea'
    """
    text = text.strip()
    if not text.startswith(("{", "[")):
        return text
    open_: list[str] = []
    first_list = item = 0  # the depth of the outermost list, and the place where its last item begins
    for match in _SIGNS.finditer(text):
        sign = match[0]
        if sign in _CLOSING:
            open_.append(sign)
            if sign == "[" and not first_list:
                first_list, item = len(open_), match.end()
        elif sign in "]}":
            if not open_:
                break
            open_.pop()
            if len(open_) < first_list:
                first_list = 0
        elif sign == "," and len(open_) == first_list:
            item = match.end()
        if not open_:
            return text
    if not first_list:
        return text
    try:
        if text[-1] not in '"}]':  # a number may have had more digits
            raise ValueError
        json.loads(text[item:], strict=False)
    except ValueError:
        begun = text[:item].rstrip()
        text = f"{begun} null" if begun.endswith(",") else f"{begun}null"
    return text + "".join(_CLOSING[sign] for sign in reversed(open_[:first_list]))


_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{},]', re.DOTALL)
"""Strings, and the signs between them that give JSON its structure."""


def _fields(value: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    spelt = {_spelling(name): name for name in names}
    fields = {spelt[_spelling(key)]: item for key, item in value.items() if _spelling(key) in spelt}
    within = (_fields(item, names) for item in value.values()) if not fields else iter(())
    return fields or next(filter(None, within), {})


def _spelling(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())
