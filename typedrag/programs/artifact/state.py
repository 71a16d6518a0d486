"""The state of a module that teleprompters change, as JSON: instructions, descriptions, demonstrations, settings.

A state has an entry for each predictor, as DSPy writes it, and `dspy.Module.load_state` can read it. It
differs from DSPy's in three ways: compiled sub-modules are included, values of demonstrations are
loaded in the types of their fields, and of a demonstration only the fields that a prompt shows are kept,
so that neither reference answers nor ids of a dataset travel with a program.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import dspy
from dspy.adapters.utils import serialize_for_json
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_serializer,
)

from typedrag.errors import InputError
from typedrag.programs.artifact.fingerprints import Shape, shape_changes, shape_of

logger = logging.getLogger(__name__)

_CLOSED = ConfigDict(extra="forbid", frozen=True)
AUGMENTED = "augmented"
"""DSPy's mark of a demonstration that a teleprompter made."""


class LMSettings(BaseModel):
    """The LM settings that a reply depends on; addresses, keys and headers are excluded."""

    model_config = _CLOSED

    temperature: int | float | None = None
    """The LM's own by default, as with all settings here."""
    max_tokens: PositiveInt | None = None
    """The most tokens of a reply."""
    top_p: int | float | None = None
    """The share of the probability mass that tokens are sampled from."""
    top_k: PositiveInt | None = None
    """The most probable tokens that each token is sampled from."""
    seed: int | None = None
    """The seed of the sampling."""
    frequency_penalty: int | float | None = None
    """The penalty on tokens by how often they have appeared."""
    presence_penalty: int | float | None = None
    """The penalty on tokens that have appeared."""
    stop: str | list[str] | None = None
    """The texts that end a reply."""

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
    """The texts of a signature in a prompt."""

    model_config = _CLOSED

    instructions: str
    fields: list[FieldTexts]
    """In the order of the signature's fields."""


class PredictorState(BaseModel):
    """The parts of a predictor that a teleprompter can change."""

    model_config = _CLOSED

    signature: SignatureTexts
    demos: list[dict[str, JsonValue]] = Field(default_factory=list)
    """Each with those fields of the signature that it has, in the signature's order."""
    untyped: list[tuple[NonNegativeInt, str]] = Field(default_factory=list)
    """Values that do not have their field's type, such as a list that a teleprompter shortened as text, by
    index of the demonstration and name of the field. They are loaded unchanged."""
    config: LMSettings = LMSettings()
    """The settings of this predictor's calls."""
    lm: None = None
    """Always empty: the LM belongs to whoever runs the program."""

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


def shapes_of(module: dspy.Module) -> dict[str, Shape]:
    """The shape of each predictor's signature."""
    return {name: shape_of(predictor.signature) for name, predictor in named_predictors(module).items()}


def state_of(module: dspy.Module) -> dict[str, PredictorState]:
    """The state of a module.

    Demonstrations without an input or without an output of the signature are left out, since DSPy never
    shows them to an LM.
    """
    return {name: _state_of(name, predictor) for name, predictor in named_predictors(module).items()}


def fingerprint(state: State) -> str:
    """A short hash of a state: modules with the same hash send an LM the same prompts."""
    text = json.dumps(STATE.dump_python(dict(state), mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def restore(module: dspy.Module, state: State, shapes: Mapping[str, Shape]) -> None:
    """Put a state into a module, whole or not at all.

    Args:
        module: Built like the one that was saved.
        state: From `state_of`.
        shapes: From `shapes_of` of the same module.

    Raises:
        InputError: If the module has other predictors, a signature has changed since, or a value of a
            demonstration no longer fits its field; it names the predictor.
    """
    check_shapes(shapes_of(module), shapes)
    predictors = named_predictors(module)
    for name in state.keys() ^ predictors.keys():
        has, lacks = ("a state", "signature") if name in state else ("a signature", "state")
        raise InputError(f"its predictor {shown(name)} has {has} and no {lacks}")
    ready = {name: _read(name, predictors[name].signature, saved) for name, saved in state.items()}
    for name, (signature, demos) in ready.items():
        predictors[name].signature = signature
        predictors[name].demos = demos
        predictors[name].config = state[name].config.given()


def check_shapes(now: Mapping[str, Shape], before: Mapping[str, Shape]) -> None:
    """Check the signatures of a module's predictors against those that were saved.

    Raises:
        InputError: If they differ; it names a predictor and says what has changed.
    """
    for name in before:
        if name not in now:
            raise InputError(f"the program no longer has its predictor {shown(name)}")
    for name in now:
        if name not in before:
            raise InputError(f"it lacks the predictor {shown(name)}, which the program has now")
    for name, shape in before.items():
        if changes := "; ".join(shape_changes(shape, now[name])):
            raise InputError(f"the signature of predictor {shown(name)} has changed since: {cut(changes)}")


def renamed(signature: type[dspy.Signature], name: str) -> type[dspy.Signature]:
    """The signature, renamed in place: DSPy calls every signature whose texts it changes `StringSignature`.

    Example:
        >>> from typedrag.signatures import AnswerReason
        >>> renamed(AnswerReason.with_instructions("Say why."), "AnswerReason").__name__
        'AnswerReason'
    """
    signature.__name__ = name
    return signature


def cut(text: str, length: int = 300) -> str:
    """A text, cut to a length.

    Example:
        >>> cut("abcdef", 3)
        'abc…'
    """
    return text if len(text) <= length else f"{text[:length]}…"


def shown(text: str) -> str:
    r"""A name from an untrusted file, quoted for use in one line.

    Example:
        >>> print(shown("a\nb"))
        'a\nb'
    """
    return repr(cut(text, 100))


def _walk(module: dspy.Module) -> Iterator[tuple[str, dspy.Predict]]:
    if isinstance(module, dspy.Predict):
        yield "self", module
    for name, value in vars(module).items():
        for path, item in _items(name, value):
            if isinstance(item, dspy.Predict):
                yield path, item
            elif isinstance(item, dspy.Module):
                yield from ((f"{path}.{inner}", predictor) for inner, predictor in _walk(item))


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"{name}['{key}']", item) for key, item in value.items())
    else:
        yield name, value


def _state_of(name: str, predictor: dspy.Predict) -> PredictorState:
    if predictor.lm is not None:
        logger.info("predictor %s: its LM is no part of its state", name)
    if others := predictor.config.keys() - LMSettings.model_fields.keys():
        logger.warning("predictor %s: left out its settings %s", name, ", ".join(sorted(others)))
    signature = predictor.signature
    demos: list[dict[str, Any]] = []
    untyped: list[tuple[int, str]] = []
    for demo in predictor.demos:
        values = {field: serialize_for_json(demo[field]) for field in signature.fields if field in demo}
        if not (values.keys() & signature.input_fields.keys() and values.keys() & signature.output_fields.keys()):
            continue
        untyped += [(len(demos), f) for f, v in values.items() if _typed(v, signature.fields[f].annotation) is _MISFIT]
        demos.append({**({AUGMENTED: True} if demo.get(AUGMENTED) else {}), **values})
    return PredictorState(
        signature=SignatureTexts.model_validate(signature.dump_state()),
        demos=demos,
        untyped=untyped,
        config=LMSettings.among(predictor.config),
    )


def _read(
    name: str, signature: type[dspy.Signature], saved: PredictorState
) -> tuple[type[dspy.Signature], list[dspy.Example]]:
    if len(saved.signature.fields) != len(signature.fields):
        raise InputError(f"the texts of predictor {shown(name)} do not fit its signature")
    demos = []
    for number, values in enumerate(saved.demos):
        where = f"demonstration {number + 1} of predictor {shown(name)}"
        demo: dict[str, Any] = {}
        for field, value in values.items():
            if field == AUGMENTED:
                demo[field] = value is True
                continue
            if field not in signature.fields:
                raise InputError(f"{where} has a field {shown(field)} that its signature lacks")
            read = value if (number, field) in saved.untyped else _typed(value, signature.fields[field].annotation)
            if read is _MISFIT:
                raise InputError(f"{where}: its '{field}' does not fit the type of the field")
            demo[field] = read
        demos.append(dspy.Example(demo))
    return renamed(signature.load_state(saved.signature.model_dump()), signature.__name__), demos


_MISFIT = object()


def _typed(value: JsonValue, annotation: Any) -> Any:
    """The value in its field's type, or `_MISFIT` if a prompt would show it differently."""
    try:
        typed = TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return _MISFIT
    # compared as text, since 1 == 1.0 == True in Python
    return typed if json.dumps(serialize_for_json(typed)) == json.dumps(value) else _MISFIT
