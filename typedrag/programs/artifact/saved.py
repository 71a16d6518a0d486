"""A compiled module as a folder of JSON files, which any typedrag can load that has the module.

A file such as `program.json` says which module with which options, and how it came about; `state.json` what the
teleprompter changed (see `state`); `signatures.json` the shapes that its predictors' signatures had (see
`fingerprints`). Nothing in it is ever executed, and it names neither keys nor addresses: the folder may come from a
stranger, and may be given to one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import dspy
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from typedrag.errors import InputError
from typedrag.programs.artifact.fingerprints import SHAPES, Line, Shape
from typedrag.programs.artifact.json_folder import has_part, read_part, write_parts
from typedrag.programs.artifact.state import STATE, State, cut, fingerprint, restore, shown

FORMAT = 1
STATE_FILE, SIGNATURES = "state.json", "signatures.json"

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
    signatures: Mapping[str, Shape] = Field(default={}, exclude=True)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its state; see `state.fingerprint`."""
        return fingerprint(self.state)

    @property
    def other_versions(self) -> str:
        """The libraries whose versions differ from those it was compiled with, as a text; empty if none does."""
        return "; ".join(
            f"{name} {cut(before, 40)}, here is {now}"
            for name, now in _versions().items()
            if name != "python" and (before := self.versions.get(name, now)) != now
        )

    def restored(self, module: M) -> M:
        """The module, which was built anew, with what the teleprompter changed about it.

        Raises:
            InputError: If its predictors or their signatures are no longer those that it was compiled with.
        """
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
            SIGNATURES: SHAPES.dump_python(dict(self.signatures), mode="json"),
        }
        write_parts(folder, parts, redact)

    @classmethod
    def read(cls, folder: Path, source: str = "") -> Self:
        """The content of a folder, checked as far as it can be without building the module.

        Args:
            folder: That `write` wrote.
            source: What to call it in messages, if not by its path.

        Raises:
            InputError: If it holds no such module, lacks a part, or is of a newer format.
        """
        source, file = source or str(folder), f"{cls.noun}.json"
        data = read_part(folder, file, source) if has_part(folder, file) else None
        if not isinstance(data, dict) or not isinstance(data.get("format"), int) or cls.noun not in data:
            raise InputError(f"{source} is no compiled {cls.noun}", "Name a folder that typedrag compile has written")
        if data["format"] != FORMAT:
            mend = "Update typedrag" if data["format"] > FORMAT else "Compile it again"
            problem = f"{source} is a compiled {cls.noun} of format {cut(str(data['format']), 20)}"
            raise InputError(f"{problem}; this typedrag reads {FORMAT}", mend)
        saved: Self = _validated(TypeAdapter(cls), data, file, source)
        state = _validated(STATE, read_part(folder, STATE_FILE, source), STATE_FILE, source)
        signatures = _validated(SHAPES, read_part(folder, SIGNATURES, source), SIGNATURES, source)
        return saved.model_copy(update={"source": source, "state": state, "signatures": signatures})


def _validated(kind: TypeAdapter[Any], data: Any, name: str, source: str) -> Any:
    try:
        return kind.validate_python(data, context=source)
    except ValidationError as error:
        first = error.errors()[0]
        where = shown(".".join(str(part) for part in first["loc"]))
        problem = f"{source}: {name} is not as typedrag writes it, at {where}: {cut(first['msg'])}"
        raise InputError(problem, "Copy the folder again, or compile again") from None
