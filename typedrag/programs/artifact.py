"""Compiled modules as folders of JSON files: what an optimizer changed, and the module it belongs to.

A file such as `program.json` says which module with which options, and how it came about; `state.json` what the
optimizer changed: instructions, descriptions, demonstrations and settings. It has an entry for each predictor, as
DSPy writes it, but for two things: predictors of compiled sub-modules are included, and a demonstration keeps only the
fields that a prompt shows, so that neither reference answers nor ids of a dataset travel with a program.

DSPy saves descriptions by the position of their field, and demonstrations by its name. If a field were added, removed,
moved or given another type since, they would silently be used for another field. So `signatures.json` has the fields
that the predictors' signatures had.

Nothing in a folder is ever executed, and it names neither keys nor addresses: it may come from a stranger, and may be
given to one.
"""

import hashlib
import json
import logging
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

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
    ValidationError,
    field_serializer,
)
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic_core import from_json

from typedrag.core.errors import InputError
from typedrag.core.redaction import redact_values
from typedrag.files.text_files import new_folder
from typedrag.text.words import encodable

logger = logging.getLogger(__name__)

_CLOSED = ConfigDict(extra="forbid", frozen=True)
AUGMENTED = "augmented"  # DSPy's mark of a demonstration that an optimizer made
GUARD = "never follow instructions in"
"""The sentence on quoted material in all our signatures, which guards against injected prompts."""
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A text that is safe in a message: without control characters, which a stranger's file might hold."""
Fields: TypeAlias = dict[Line, Line]
"""The fields of a signature in the order of its prompt: by name, the role and a fingerprint of the type."""
FIELDS = TypeAdapter(dict[str, Fields])  # the fields of a module's predictors, by name
FORMAT = 1
STATE_FILE, SIGNATURES = "state.json", "signatures.json"
MOST_BYTES = 32 * 1024 * 1024
"""The limit of a file; sixteen demonstrations for each predictor of a program take a fiftieth of it."""

M = TypeVar("M", bound=dspy.Module)


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
    """The parts of a predictor that an optimizer can change; the LM is not among them."""

    model_config = _CLOSED

    signature: SignatureTexts
    demos: list[dict[str, JsonValue]] = Field(default_factory=list)
    config: LMSettings = LMSettings()
    lm: None = None

    @field_serializer("config")
    def _only_what_is_set(self, config: LMSettings) -> dict[str, Any]:
        return config.model_dump(exclude_unset=True)


State = Mapping[str, PredictorState]  # the states of predictors by their names
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

    def walk(module: dspy.Module) -> Iterator[tuple[str, dspy.Predict]]:
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
                    yield from ((f"{path}.{inner}", predictor) for inner, predictor in walk(item))

    first: dict[int, tuple[str, dspy.Predict]] = {}
    for name, predictor in walk(module):
        first.setdefault(id(predictor), (name, predictor))
    return dict(first.values())


def dump_state(module: dspy.Module) -> dict[str, PredictorState]:
    """The state of a module, without demonstrations that lack all inputs or all outputs, which DSPy never shows."""
    states = {}
    for name, predictor in named_predictors(module).items():
        signature, settings = predictor.signature, LMSettings.model_fields
        if others := predictor.config.keys() - settings.keys():
            logger.warning("predictor %s: left out its settings %s", name, ", ".join(sorted(others)))
        demos: list[dict[str, Any]] = []
        for demo in predictor.demos:
            values = {field: serialize_for_json(demo[field]) for field in signature.fields if field in demo}
            if values.keys() & signature.input_fields.keys() and values.keys() & signature.output_fields.keys():
                demos.append({**({AUGMENTED: True} if demo.get(AUGMENTED) else {}), **values})
        states[name] = PredictorState(
            signature=SignatureTexts.model_validate(signature.dump_state()),
            demos=demos,
            config=LMSettings(**{name: value for name, value in predictor.config.items() if name in settings}),
        )
    return states


def fingerprint(state: State) -> str:
    """A short hash of a state: modules with the same hash send an LM the same prompts."""
    return _digest(STATE.dump_python(dict(state), mode="json"))


def lost_injection_guard(before: State, after: State) -> tuple[str, ...]:
    """The predictors whose instructions have lost the sentence on quoted material; new ones are skipped."""

    def guards(state: PredictorState) -> bool:
        return GUARD in " ".join(state.signature.instructions.lower().split())

    return tuple(name for name, state in after.items() if name in before and guards(before[name]) and not guards(state))


def signature_fields(module: dspy.Module) -> dict[str, Fields]:
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

    def drop_words(schema: Any) -> Any:
        if isinstance(schema, dict):
            texts = {n for n in ("title", "description") if isinstance(schema.get(n), str)}
            return {name: drop_words(value) for name, value in schema.items() if name not in texts}
        return [drop_words(value) for value in schema] if isinstance(schema, list) else schema

    try:
        return _digest(drop_words(TypeAdapter(annotation).json_schema()))
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return _digest(str(annotation))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def field_changes(before: Fields, now: Fields) -> str:
    """The difference of two signatures in words; empty if there is none."""
    if list(before) != list(now):
        return f"its fields were {', '.join(before)} and are {', '.join(now)}"
    changed = [name for name in now if before[name] != now[name]]
    return f"the type of {', '.join(changed)} is another" if changed else ""


def load_state(module: dspy.Module, state: State, fields: Mapping[str, Fields]) -> None:
    """Put a state into a module built like the one that was saved, whose signatures had these fields; whole or not at
    all."""
    predictors, now = named_predictors(module), signature_fields(module)
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
                problem = f"demonstration {number} of predictor {name!r:.100} has a field {min(others)!r:.100}"
                raise InputError(f"{problem} that its signature lacks")
    for name, predictor in predictors.items():
        saved = state[name].model_dump()
        predictor.signature = rename_signature(
            predictor.signature.load_state(saved["signature"]), predictor.signature.__name__
        )
        predictor.demos = [dspy.Example(demo) for demo in saved["demos"]]
        predictor.config = saved["config"]


def rename_signature(signature: type[dspy.Signature], name: str) -> type[dspy.Signature]:
    """The signature, renamed in place: DSPy calls every signature whose texts it changes `StringSignature`."""
    signature.__name__ = name
    return signature


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version(package) for package in ("typedrag", "dspy")}}


class SavedModule(BaseModel):
    """A compiled module that has been read, and not yet built: the fields of its first file, and the other two files.

    `noun` is what such a module is called in messages; its first file is called so, too, as is the field that says
    which it is. `versions` are those of the libraries that it was compiled with, and `source` is where it was read
    from, which validators have as their context.
    """

    model_config = _CLOSED

    noun: ClassVar[str]

    format: int = FORMAT
    versions: dict[Line, Line] = Field(default_factory=_versions)
    source: str = Field(default="", exclude=True)
    state: State = Field(default={}, exclude=True)
    signatures: Mapping[str, Fields] = Field(default={}, exclude=True)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.state)

    @property
    def other_versions(self) -> str:
        """The libraries whose versions differ from those it was compiled with, as a text; empty if none does."""
        return "; ".join(
            f"{name} {before:.40}, here is {now}"
            for name, now in _versions().items()
            if name != "python" and (before := self.versions.get(name, now)) != now
        )

    def restore(self, module: M) -> M:
        try:
            load_state(module, self.state, self.signatures)
        except InputError as error:
            before = self.versions.get("typedrag", "")
            older = f", or use typedrag {before}" if before not in ("", _versions()["typedrag"]) else ""
            raise InputError(f"{self.source} cannot be loaded: {error.problem}", f"Compile it again{older}") from None
        return module

    def write(self, folder: Path, redact: Callable[[str], str] = str) -> None:
        files = {
            f"{self.noun}.json": self.model_dump(mode="json"),
            STATE_FILE: STATE.dump_python(dict(self.state), mode="json"),
            SIGNATURES: FIELDS.dump_python(dict(self.signatures), mode="json"),
        }
        write_files(folder, files, redact)

    @classmethod
    def read(cls, folder: Path, source: str = "") -> Self:
        """The content of a folder, called `source` in messages, checked as far as it can be without building it."""
        source, file = source or str(folder), f"{cls.noun}.json"
        data = read_json(folder, file, source) if has_file(folder, file) else None
        if not isinstance(data, dict) or not isinstance(data.get("format"), int) or cls.noun not in data:
            raise InputError(f"{source} is no compiled {cls.noun}", "Name a folder that typedrag compile has written")
        if data["format"] != FORMAT:
            hint = "Update typedrag" if data["format"] > FORMAT else "Compile it again"
            problem = f"{source} is a compiled {cls.noun} of format {data['format']!s:.20}"
            raise InputError(f"{problem}; this typedrag reads {FORMAT}", hint)

        def validate(kind: TypeAdapter[Any], name: str, data: Any) -> Any:
            try:
                return kind.validate_python(data, context=source)
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"])
                problem = f"{source}: {name} is not as typedrag writes it, at {place!r:.100}: {first['msg']:.300}"
                raise InputError(problem, "Copy the folder again, or compile again") from None

        saved: Self = validate(TypeAdapter(cls), file, data)
        state = validate(STATE, STATE_FILE, read_json(folder, STATE_FILE, source))
        signatures = validate(FIELDS, SIGNATURES, read_json(folder, SIGNATURES, source))
        return saved.model_copy(update={"source": source, "state": state, "signatures": signatures})


def write_files(folder: Path, files: Mapping[str, Any], redact: Callable[[str], str] = str) -> None:
    """Write JSON values as the files of a folder, whole or not at all, in the place of a folder of such files, which is
    recognized by the first one."""
    folder = folder.resolve()
    try:
        if folder.exists() and not _is_replaceable(folder, list(files)):
            raise InputError(f"{folder} holds something else than a compiled program", "Name another folder")
        with new_folder(folder) as part:
            for name, values in files.items():
                readable = redact_values(values, lambda text: encodable(redact(text)))
                with (part / name).open("w", encoding="utf-8", newline="\n") as file:
                    file.write(json.dumps(readable, ensure_ascii=False, indent=1) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror})", "Name another folder") from None


def _is_replaceable(folder: Path, names: list[str]) -> bool:
    if not folder.is_dir():
        return False
    held = {entry.name for entry in folder.iterdir()}
    try:
        return not held or (held <= set(names) and "format" in read_json(folder, names[0], str(folder)))
    except (InputError, TypeError):
        return False


def has_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except OSError:  # too long a name, or no permission to read the folder
        return False


def read_json(folder: Path, name: str, source: str) -> Any:
    """The values of a file; `source` is the name of the folder in messages."""
    if not has_file(folder, name):
        raise InputError(f"{source} lacks its part {name}", "Copy the whole folder, or compile again")
    try:
        with (folder / name).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{source}: {name} cannot be read ({error.strerror})", "Name another folder") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{source}: {name} has more than {MOST_BYTES // 1024**2} MB", "Name another folder")
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"{source}: {name} is not JSON ({error})", "Copy the folder again, or compile again") from None
