"""What teleprompters change about a module, as JSON: instructions, descriptions, demonstrations, settings.

A state is what DSPy writes, a predictor each, and `dspy.Module.load_state` can read it. It differs in
what a program needs that is loaded again: sub-modules that are compiled are part of it, values of
demonstrations come back in the types of their fields, and of a demonstration only what a prompt
shows is kept, so that neither references nor ids of a dataset travel with a program.
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
    """What a reply depends on. Addresses, keys and headers are no part of it and cannot be."""

    model_config = _CLOSED

    temperature: int | float | None = None
    """By default the LM's, as with all others."""
    max_tokens: PositiveInt | None = None
    """That the LM may write in a call."""
    top_p: int | float | None = None
    """The share of the probability that is sampled from."""
    seed: int | None = None
    """Of the sampling."""
    frequency_penalty: int | float | None = None
    """On words by how often they have come."""
    presence_penalty: int | float | None = None
    """On words that have come."""
    stop: str | list[str] | None = None
    """Where a reply ends."""

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> LMSettings:
        """Those of these settings that are such."""
        return cls(**{name: value for name, value in given.items() if name in cls.model_fields})

    def given(self) -> dict[str, Any]:
        """Those that are set."""
        return self.model_dump(exclude_unset=True)


class FieldTexts(BaseModel):
    """What a prompt says of a field."""

    model_config = _CLOSED

    prefix: str
    description: str


class SignatureTexts(BaseModel):
    """What a prompt says of a signature."""

    model_config = _CLOSED

    instructions: str
    fields: list[FieldTexts]
    """In the order of the signature's."""


class PredictorState(BaseModel):
    """What a teleprompter can change about a predictor."""

    model_config = _CLOSED

    signature: SignatureTexts
    demos: list[dict[str, JsonValue]] = Field(default_factory=list)
    """Each with the fields it has of the signature, in its order."""
    untyped: list[tuple[NonNegativeInt, str]] = Field(default_factory=list)
    """Demonstration and field of values that are not of their field's type, such as lists that a
    teleprompter has cut as text, or none at all. They come back as they are."""
    config: LMSettings = LMSettings()
    """Of its calls alone."""
    lm: None = None
    """A program never holds an LM; who runs it does."""

    @field_serializer("config")
    def _only_what_is_set(self, config: LMSettings) -> dict[str, Any]:
        return config.given()


State = Mapping[str, PredictorState]
"""By the name of the predictor."""

STATE = TypeAdapter(dict[str, PredictorState])


def named_predictors(module: dspy.Module) -> dict[str, dspy.Predict]:
    """The predictors of a module by DSPy's names for them, those of compiled sub-modules among them.

    DSPy itself passes by what is compiled, to keep it from being compiled again.

    Example:
        >>> inner = dspy.ChainOfThought("question -> answer")
        >>> inner._compiled = True
        >>> outer = dspy.Module()
        >>> outer.inner = inner
        >>> outer.named_predictors(), list(named_predictors(outer))
        ([], ['inner.predict'])
    """
    found: dict[str, dspy.Predict] = {}
    seen: set[int] = set()
    for name, predictor in _walk(module):
        if id(predictor) not in seen:
            seen.add(id(predictor))
            found[name] = predictor
    return found


def shapes_of(module: dspy.Module) -> dict[str, Shape]:
    """The shape of each predictor's signature."""
    return {name: shape_of(predictor.signature) for name, predictor in named_predictors(module).items()}


def state_of(module: dspy.Module) -> dict[str, PredictorState]:
    """The state of a module.

    Demonstrations without an input or an output of the signature are left out, since DSPy shows them
    to no LM.
    """
    return {name: _state_of(name, predictor) for name, predictor in named_predictors(module).items()}


def fingerprint(state: State) -> str:
    """A short hash of a state: two modules with the same one ask the same of an LM."""
    text = json.dumps(STATE.dump_python(dict(state), mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def restore(module: dspy.Module, state: State, shapes: Mapping[str, Shape]) -> None:
    """Put a state into a module, whole or not at all.

    Args:
        module: Built as the one that the state is of.
        state: As `state_of` gave it.
        shapes: As `shapes_of` gave them for the same module.

    Raises:
        InputError: If the module has other predictors, one of their signatures has changed since, or
            a value of a demonstration no longer fits its field; it names the predictor.
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
    """Compare the signatures of a module's predictors with those that were saved of it.

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
    """A signature under another name: DSPy calls all `StringSignature` of which it changes a text.

    Example:
        >>> from typedrag.signatures import AnswerReason
        >>> renamed(AnswerReason.with_instructions("Say why."), "AnswerReason").__name__
        'AnswerReason'
    """
    signature.__name__ = name
    return signature


def cut(text: str, length: int = 300) -> str:
    """A text that is not too long to be read.

    Example:
        >>> cut("abcdef", 3)
        'abc…'
    """
    return text if len(text) <= length else f"{text[:length]}…"


def shown(text: str) -> str:
    r"""A stranger's name as part of one line.

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
    """The value in its field's type, if a prompt shows that as it shows the value."""
    try:
        typed = TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return _MISFIT
    # as text, since Python holds 1, 1.0 and True for equal
    return typed if json.dumps(serialize_for_json(typed)) == json.dumps(value) else _MISFIT
