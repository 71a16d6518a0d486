"""The state of a module that teleprompters change, as JSON: instructions, descriptions, demonstrations, settings.

A state has an entry for each predictor, as DSPy writes it. It differs from DSPy's in that predictors of compiled
sub-modules are included, and that a demonstration keeps only the fields that a prompt shows, so that neither reference
answers nor ids of a dataset travel with a program.

DSPy saves descriptions by the position of their field, and demonstrations by its name. If a field were added, removed,
moved or given another type since, they would silently be used for another field. So the fields of each predictor's
signature are saved with a state, see `fields_of`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeAlias

import dspy
from dspy.adapters.utils import serialize_for_json
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    field_serializer,
)
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from typedrag.core.errors import InputError

logger = logging.getLogger(__name__)

_CLOSED = ConfigDict(extra="forbid", frozen=True)
AUGMENTED = "augmented"
"""DSPy's mark of a demonstration that a teleprompter made."""
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A text that is safe in a message: without control characters, which a stranger's file might hold."""
Fields: TypeAlias = dict[Line, Line]
"""The fields of a signature in the order of its prompt: by name, the role and a fingerprint of the type."""
FIELDS = TypeAdapter(dict[str, Fields])
"""The fields of a module's predictors, by name."""


class LMSettings(BaseModel):
    """The LM settings that a reply depends on; addresses, keys and headers are excluded."""

    model_config = _CLOSED

    temperature: int | float | None = None
    max_tokens: PositiveInt | None = None
    top_p: int | float | None = None
    top_k: PositiveInt | None = None
    seed: int | None = None
    frequency_penalty: int | float | None = None
    presence_penalty: int | float | None = None
    stop: str | list[str] | None = None

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> LMSettings:
        """The settings among some values; others are left out."""
        return cls(**{name: value for name, value in values.items() if name in cls.model_fields})

    def given(self) -> dict[str, Any]:
        """The settings that are set, as a dict."""
        return self.model_dump(exclude_unset=True)


class FieldTexts(BaseModel):
    """The texts of a field in a prompt."""

    model_config = _CLOSED

    prefix: str
    description: str


class SignatureTexts(BaseModel):
    """The texts of a signature in a prompt; `fields` are in the order of the signature's."""

    model_config = _CLOSED

    instructions: str
    fields: list[FieldTexts]


class PredictorState(BaseModel):
    """The parts of a predictor that a teleprompter can change; the LM is not among them."""

    model_config = _CLOSED

    signature: SignatureTexts
    demos: list[dict[str, JsonValue]] = Field(default_factory=list)
    config: LMSettings = LMSettings()
    lm: None = None

    @field_serializer("config")
    def _only_what_is_set(self, config: LMSettings) -> dict[str, Any]:
        return config.given()


State = Mapping[str, PredictorState]
"""The states of predictors by their names."""
STATE = TypeAdapter(dict[str, PredictorState])


def named_predictors(module: dspy.Module) -> dict[str, dspy.Predict]:
    """The predictors of a module by their names in DSPy, including those of compiled sub-modules.

    DSPy itself skips compiled sub-modules, so that they are not compiled again.

    Example:
        >>> inner = dspy.ChainOfThought("question -> answer")
        >>> inner._compiled = True
        >>> outer = dspy.Module()
        >>> outer.inner = inner
        >>> outer.named_predictors(), list(named_predictors(outer))
        ([], ['inner.predict'])
    """
    predictors: dict[str, dspy.Predict] = {}
    ids: set[int] = set()
    for name, predictor in _walk(module):
        if id(predictor) not in ids:
            ids.add(id(predictor))
            predictors[name] = predictor
    return predictors


def _walk(module: dspy.Module) -> Iterator[tuple[str, dspy.Predict]]:
    if isinstance(module, dspy.Predict):
        yield "self", module
    for name, value in vars(module).items():
        items = {name: value}
        if isinstance(value, list | tuple):
            items = {f"{name}[{i}]": item for i, item in enumerate(value)}
        elif isinstance(value, dict):
            items = {f"{name}['{key}']": item for key, item in value.items()}
        for path, item in items.items():
            if isinstance(item, dspy.Predict):
                yield path, item
            elif isinstance(item, dspy.Module):
                yield from ((f"{path}.{inner}", predictor) for inner, predictor in _walk(item))


def state_of(module: dspy.Module) -> dict[str, PredictorState]:
    """The state of a module.

    Demonstrations without an input or without an output of the signature are left out, since DSPy never
    shows them to an LM.
    """
    return {name: _state_of(name, predictor) for name, predictor in named_predictors(module).items()}


def _state_of(name: str, predictor: dspy.Predict) -> PredictorState:
    if others := predictor.config.keys() - LMSettings.model_fields.keys():
        logger.warning("predictor %s: left out its settings %s", name, ", ".join(sorted(others)))
    signature = predictor.signature
    demos: list[dict[str, Any]] = []
    for demo in predictor.demos:
        values = {field: serialize_for_json(demo[field]) for field in signature.fields if field in demo}
        if values.keys() & signature.input_fields.keys() and values.keys() & signature.output_fields.keys():
            demos.append({**({AUGMENTED: True} if demo.get(AUGMENTED) else {}), **values})
    return PredictorState(
        signature=SignatureTexts.model_validate(signature.dump_state()),
        demos=demos,
        config=LMSettings.among(predictor.config),
    )


def fingerprint(state: State) -> str:
    """A short hash of a state: modules with the same hash send an LM the same prompts."""
    return _digest(STATE.dump_python(dict(state), mode="json"))


def fields_of(module: dspy.Module) -> dict[str, Fields]:
    """The fields of each predictor's signature, without what their prompts say of them."""
    return {
        name: {
            field: f"{'input' if field in predictor.signature.input_fields else 'output'} {_type(info.annotation)}"
            for field, info in predictor.signature.fields.items()
        }
        for name, predictor in named_predictors(module).items()
    }


@cache
def _type(annotation: Any) -> str:
    """A fingerprint of a type, by its schema without titles and descriptions."""
    try:
        return _digest(_without_words(TypeAdapter(annotation).json_schema()))
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return _digest(str(annotation))


def _without_words(schema: Any) -> Any:
    if isinstance(schema, dict):
        texts = {n for n in ("title", "description") if isinstance(schema.get(n), str)}
        return {name: _without_words(value) for name, value in schema.items() if name not in texts}
    return [_without_words(value) for value in schema] if isinstance(schema, list) else schema


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def field_changes(before: Fields, now: Fields) -> str:
    """The difference of two signatures in words; empty if there is none."""
    if list(before) != list(now):
        return f"its fields were {', '.join(before)} and are {', '.join(now)}"
    changed = [name for name in now if before[name] != now[name]]
    return f"the type of {', '.join(changed)} is another" if changed else ""


def restore(module: dspy.Module, state: State, fields: Mapping[str, Fields]) -> None:
    """Put a state into a module, whole or not at all.

    Args:
        module: Built like the one that was saved.
        state: From `state_of`.
        fields: From `fields_of` of the same module.
    """
    predictors, now = named_predictors(module), fields_of(module)
    for name in {**fields, **state, **now}:
        if name not in now:
            raise InputError(f"the program no longer has its predictor {name!r:.100}")
        if name not in fields or name not in state:
            raise InputError(f"it lacks the predictor {name!r:.100}, which the program has now")
    for name in now:
        changes = field_changes(fields[name], now[name])
        if not changes and len(state[name].signature.fields) != len(now[name]):
            changes = "its fields have other texts"
        if changes:
            raise InputError(f"the signature of predictor {name!r:.100} has changed since: {changes:.300}")
        for number, demo in enumerate(state[name].demos, 1):
            if others := demo.keys() - {*now[name], AUGMENTED}:
                what = f"demonstration {number} of predictor {name!r:.100}"
                raise InputError(f"{what} has a field {min(others)!r:.100} that its signature lacks")
    for name, predictor in predictors.items():
        saved = state[name].model_dump()
        signature = predictor.signature
        predictor.signature = renamed(signature.load_state(saved["signature"]), signature.__name__)
        predictor.demos = [dspy.Example(demo) for demo in saved["demos"]]
        predictor.config = saved["config"]


def renamed(signature: type[dspy.Signature], name: str) -> type[dspy.Signature]:
    """The signature, renamed in place: DSPy calls every signature whose texts it changes `StringSignature`.

    Example:
        >>> from typedrag.signatures import AnswerReason
        >>> renamed(AnswerReason.with_instructions("Say why."), "AnswerReason").__name__
        'AnswerReason'
    """
    signature.__name__ = name
    return signature
