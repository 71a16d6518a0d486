"""A compiled module as a folder of JSON files, which any typedrag can load that has the module.

A file such as `program.json` says which module with which options, and how it came about; `state.json` what the
teleprompter changed; `signatures.json` the fields that its predictors' signatures had (see `state`). Nothing in it is
ever executed, and it names neither keys nor addresses: the folder may come from a stranger, and may be given to one.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import dspy
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from typedrag.core.errors import InputError
from typedrag.core.redaction import redact_values
from typedrag.files.text_files import new_folder
from typedrag.programs.artifact.state import FIELDS, STATE, Fields, Line, State, fingerprint, restore
from typedrag.text.words import encodable

FORMAT = 1
STATE_FILE, SIGNATURES = "state.json", "signatures.json"
MOST_BYTES = 32 * 1024 * 1024
"""The limit of a file; sixteen demonstrations for each predictor of a program take a fiftieth of it."""

M = TypeVar("M", bound=dspy.Module)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version(package) for package in ("typedrag", "dspy")}}


class SavedModule(BaseModel):
    """A compiled module that has been read, and not yet built: the fields of its first file, and the other two files.

    `noun` is what such a module is called in messages; its first file is called so, too, as is the field that says
    which it is. `versions` are those of the libraries that it was compiled with, and `source` is where it was read
    from, which validators have as their context.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    noun: ClassVar[str]

    format: int = FORMAT
    versions: dict[Line, Line] = Field(default_factory=_versions)
    source: str = Field(default="", exclude=True)
    state: State = Field(default={}, exclude=True)
    signatures: Mapping[str, Fields] = Field(default={}, exclude=True)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its state; see `state.fingerprint`."""
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
        """Put what the teleprompter changed into the module, which was built anew, and return it."""
        try:
            restore(module, self.state, self.signatures)
        except InputError as error:
            before = self.versions.get("typedrag", "")
            older = f", or use typedrag {before}" if before not in ("", _versions()["typedrag"]) else ""
            raise InputError(f"{self.source} cannot be loaded: {error.problem}", f"Compile it again{older}") from None
        return module

    def write(self, folder: Path, redact: Callable[[str], str] = str) -> None:
        """Write it as a folder; see `write_parts`."""
        parts = {
            f"{self.noun}.json": self.model_dump(mode="json"),
            STATE_FILE: STATE.dump_python(dict(self.state), mode="json"),
            SIGNATURES: FIELDS.dump_python(dict(self.signatures), mode="json"),
        }
        write_parts(folder, parts, redact)

    @classmethod
    def read(cls, folder: Path, source: str = "") -> Self:
        """The content of a folder, checked as far as it can be without building the module.

        Args:
            folder: That `write` wrote.
            source: What to call it in messages, if not by its path.
        """
        source, file = source or str(folder), f"{cls.noun}.json"
        data = read_part(folder, file, source) if has_part(folder, file) else None
        if not isinstance(data, dict) or not isinstance(data.get("format"), int) or cls.noun not in data:
            raise InputError(f"{source} is no compiled {cls.noun}", "Name a folder that typedrag compile has written")
        if data["format"] != FORMAT:
            hint = "Update typedrag" if data["format"] > FORMAT else "Compile it again"
            problem = f"{source} is a compiled {cls.noun} of format {data['format']!s:.20}"
            raise InputError(f"{problem}; this typedrag reads {FORMAT}", hint)
        saved: Self = _validated(TypeAdapter(cls), data, file, source)
        state = _validated(STATE, read_part(folder, STATE_FILE, source), STATE_FILE, source)
        signatures = _validated(FIELDS, read_part(folder, SIGNATURES, source), SIGNATURES, source)
        return saved.model_copy(update={"source": source, "state": state, "signatures": signatures})


def _validated(kind: TypeAdapter[Any], data: Any, name: str, source: str) -> Any:
    try:
        return kind.validate_python(data, context=source)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = f"{source}: {name} is not as typedrag writes it, at {where!r:.100}: {first['msg']:.300}"
        raise InputError(problem, "Copy the folder again, or compile again") from None


def write_parts(folder: Path, parts: Mapping[str, Any], redact: Callable[[str], str] = str) -> None:
    """Write values as the files of a folder, whole or not at all, in the place of a folder of such files.

    Args:
        folder: Created if need be.
        parts: JSON values by file name; such a folder is recognized by the first file.
        redact: Applied to all texts.
    """
    folder = folder.resolve()
    try:
        if folder.exists() and not _may_be_replaced(folder, list(parts)):
            raise InputError(f"{folder} holds something else than a compiled program", "Name another folder")
        with new_folder(folder) as part:
            for name, values in parts.items():
                readable = redact_values(values, lambda text: encodable(redact(text)))
                with (part / name).open("w", encoding="utf-8", newline="\n") as file:
                    file.write(json.dumps(readable, ensure_ascii=False, indent=1) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror})", "Name another folder") from None


def _may_be_replaced(folder: Path, names: list[str]) -> bool:
    """True if a folder is empty or holds only such files, even broken ones."""
    if not folder.is_dir():
        return False
    held = {entry.name for entry in folder.iterdir()}
    try:
        return not held or (held <= set(names) and "format" in read_part(folder, names[0], str(folder)))
    except (InputError, TypeError):
        return False


def has_part(folder: Path, name: str) -> bool:
    """True if a folder has a file of this name."""
    try:
        return (folder / name).is_file()
    except OSError:  # too long a name, or no permission to read the folder
        return False


def read_part(folder: Path, name: str, source: str) -> Any:
    """The values of a file; `source` is the name of the folder in messages."""
    if not has_part(folder, name):
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
