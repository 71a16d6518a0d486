"""A compiled program as a folder of JSON files, which any typedrag that has the program can load.

`program.json` holds the program's name and options and how it was compiled; `state.json` what the
teleprompter changed (see `state`); `signatures.json` the shapes of its predictors' signatures
(see `fingerprints`). Nothing in the folder is ever executed, and it names neither keys nor addresses:
it may come from a stranger, and may be given to one.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, TypeAdapter, ValidationError

from typedrag.errors import InputError, RetrievalError
from typedrag.programs.artifact.fingerprints import SHAPES, Line, Shape
from typedrag.programs.artifact.json_folder import has_part, read_part, write_parts
from typedrag.programs.artifact.state import (
    STATE,
    LMSettings,
    State,
    cut,
    fingerprint,
    restore,
    shapes_of,
    shown,
    state_of,
)
from typedrag.programs.options import Options
from typedrag.programs.program import Program, build_program, program_class
from typedrag.records import Passage
from typedrag.retrieval import BM25Setting, Reranker, Retriever

logger = logging.getLogger(__name__)

FORMAT = 1
_SECRET = ("api_key", "api_base", "base_url", "headers", "extra_headers", "model_list")
_OF_LM = ("spec", "adapter")
"""What is kept of an LM besides its settings."""
PROGRAM, STATE_FILE, SIGNATURES = "program.json", "state.json", "signatures.json"


Verdict = Literal["better", "worse", "less truthful", ""]
"""The compiled program against the one before, by the compile's objective; empty if the difference may be chance.
A program whose answers are less truthful by more than chance is never better, whatever else it gained."""


@dataclass(frozen=True)
class Score:
    """A mean over questions with its 95 % interval."""

    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    n: int


@dataclass(frozen=True)
class Change(Score):
    """A mean difference, question by question, with its 95 % interval and the p of its paired test."""

    p: FiniteFloat | None = None


@dataclass(frozen=True)
class CompiledAbout:
    """The origin and the scores of a compiled program, in plain values.

    Attributes:
        metric: What it was compiled against, such as `linkage=1,coverage=0.5`.
        metric_options: By metric, its options that are not the default.
        optimizer: The name of the teleprompter.
        optimizer_options: Its options, as JSON values.
        budget: `light`, `medium` or `heavy`.
        modules: The modules that were compiled; empty for all.
        dataset: The dataset whose train and validation splits it was compiled on.
        dataset_fingerprint: The fingerprint of the dataset.
        subset: The subset of the dataset; empty for all of it.
        index: The fingerprint of the index that was searched; empty if none was.
        seed: The seed that test questions were drawn with.
        test_questions: A short hash of their ids; empty until they are asked, or if unknown.
        base: The scores of the program before on the test split, by measure. Empty until it is measured.
        compiled: The scores of this program, likewise.
        differences: This program's scores less `base`, by measure; their p are not corrected for their number.
        verdict: `better`, `worse` or `less truthful` than the program before; empty if that cannot be told.
        p: The p of the paired test behind the verdict, corrected for `tests`.
        tests: The number of compiled programs that the compile has tested on these questions: with a larger
            budget it may find, and test, another.
        lms: The `spec` and settings of each LM by its role, such as `task` and `prompt`.
        created: Date and time of day in UTC.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    metric: str = ""
    metric_options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    optimizer: str = ""
    optimizer_options: Mapping[str, JsonValue] = field(default_factory=dict)
    budget: str = ""
    modules: tuple[str, ...] = ()
    dataset: str = ""
    dataset_fingerprint: str = ""
    subset: str = ""
    index: str = ""
    seed: int = 0
    test_questions: str = ""
    base: Mapping[str, Score] = field(default_factory=dict)
    compiled: Mapping[str, Score] = field(default_factory=dict)
    differences: Mapping[str, Change] = field(default_factory=dict)
    verdict: Verdict = ""
    p: FiniteFloat | None = None
    tests: int = 1
    lms: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    created: str = ""


class _Header(BaseModel):
    """The content of `program.json`."""

    model_config = ConfigDict(extra="forbid")

    format: int
    program: Line
    options: dict[str, JsonValue]
    reranker: Line
    retriever: Line | Literal[""] = ""
    bm25: dict[BM25Setting, FiniteFloat] = Field(default_factory=dict)
    versions: dict[Line, Line]
    about: CompiledAbout


@dataclass(frozen=True)
class Compiled:
    """A compiled program that is read but not yet built.

    Attributes:
        source: Where it was read from, for messages.
        program: Its name.
        options: The options it was compiled with.
        reranker: The spec of the reranker it was compiled with.
        retriever: The spec of the retriever it was compiled with; empty if unknown.
        bm25: The BM25 settings it was compiled with, `k1` and `b`, where they are not the index's.
        versions: The versions of the libraries it was compiled with, by name.
        about: How it was compiled.
        state: What was changed about its predictors.
        signatures: The shapes of their signatures.
    """

    source: str
    program: str
    options: Options
    reranker: str
    retriever: str
    bm25: Mapping[BM25Setting, float]
    versions: Mapping[str, str]
    about: CompiledAbout
    state: State
    signatures: Mapping[str, Shape]

    @property
    def retrieves(self) -> bool:
        """True if the program needs a retriever."""
        return program_class(self.program).retrieves

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

    def build(
        self,
        retriever: Retriever | None = None,
        reranker: Reranker | None = None,
        options: Options | None = None,
    ) -> Program:
        """The program, ready to be called.

        Args:
            retriever: See `Program`.
            reranker: See `Program`. `self.reranker` is not loaded by itself, since the folder may come
                from a stranger.
            options: Used instead of those it was compiled with.

        Raises:
            InputError: If it needs a retriever and has none, or if its predictors or their signatures
                have changed since it was compiled.
        """
        program = self._built(retriever, reranker, options)
        if self.other_versions:
            logger.warning("%s was compiled with %s", self.source, self.other_versions)
        return program

    def check(self, options: Options | None = None) -> None:
        """Raise the errors that `build` would raise, without an index.

        Raises:
            InputError: See `build`.
        """
        self.without_index(options)

    def without_index(self, options: Options | None = None) -> Program:
        """The program without a retriever, for the use of modules that do not search.

        Raises:
            InputError: See `build`.
        """
        return self._built(_NothingToSearch(), None, options)

    def _built(self, retriever: Retriever | None, reranker: Reranker | None, options: Options | None) -> Program:
        program = build_program(self.program, retriever, reranker, options or self.options)
        try:
            restore(program, self.state, self.signatures)
        except InputError as error:
            before = self.versions.get("typedrag", "")
            other = f", or use typedrag {before}" if before not in ("", _versions()["typedrag"]) else ""
            raise InputError(f"{self.source} cannot be loaded: {error.problem}", f"Compile it again{other}") from None
        return program


def save_compiled(
    program: Program,
    folder: Path,
    about: CompiledAbout | None = None,
    *,
    reranker: str = "none",
    retriever: str = "",
    bm25: Mapping[BM25Setting, float] | None = None,
    redact: Callable[[str], str] = str,
) -> None:
    """Write a program as a folder, whole or not at all, replacing an earlier one.

    Args:
        program: Compiled or not. LMs of its predictors are not saved, nor settings other than `LMSettings`.
        folder: Created if need be; one that holds anything but a compiled program is refused.
        about: How it was compiled; the date is filled in.
        reranker: The spec of its reranker.
        retriever: The spec of its retriever; empty for the program's own.
        bm25: The settings of its BM25 that are not the index's.
        redact: Removes from every text what must not be saved, such as keys.

    Raises:
        InputError: If the program could not be loaded again, because its class is unknown or its
            structure has changed, or if the folder cannot be written.
    """
    _check_can_be_rebuilt(program)
    about = about or CompiledAbout()
    created = about.created or datetime.now(UTC).isoformat(timespec="seconds")
    header = _Header(
        format=FORMAT,
        program=program.name,
        options=program.options.model_dump(mode="json"),
        reranker=reranker,
        retriever=retriever,
        bm25=dict(bm25 or {}),
        versions=_versions(),
        about=replace(
            about,
            created=created,
            optimizer_options=without_secrets(about.optimizer_options),
            lms={role: _public(lm) for role, lm in about.lms.items()},
        ),
    )
    parts = {
        PROGRAM: header.model_dump(mode="json"),
        STATE_FILE: STATE.dump_python(state_of(program), mode="json"),
        SIGNATURES: SHAPES.dump_python(shapes_of(program), mode="json"),
    }
    write_parts(folder, parts, redact)


def read_compiled(folder: Path, *, source: str = "") -> Compiled:
    """The compiled program in a folder, checked as far as possible without building it.

    Args:
        folder: One that `save_compiled` wrote.
        source: Its name in messages; by default its path.

    Raises:
        InputError: If it is no compiled program, lacks a part, has another format, or was compiled
            from a program or with an option that no longer exists.
    """
    source = source or str(folder)
    data = read_part(folder, PROGRAM, source) if has_part(folder, PROGRAM) else None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int) or "program" not in data:
        raise InputError(f"{source} is no compiled program", "Name a folder that typedrag compile has written")
    if data["format"] != FORMAT:
        mend = "Update typedrag" if data["format"] > FORMAT else "Compile it again"
        number = cut(str(data["format"]), 20)
        raise InputError(f"{source} is a compiled program of format {number}; this typedrag reads {FORMAT}", mend)
    header = _validated(TypeAdapter(_Header), data, PROGRAM, source)
    try:
        program = program_class(header.program).name
    except InputError as error:
        problem = f"{source} was compiled from a program {shown(header.program)}, which there is not"
        raise InputError(problem, error.mend) from None
    return Compiled(
        source=source,
        program=program,
        options=_options(header, source),
        reranker=header.reranker,
        retriever=header.retriever,
        bm25=header.bm25,
        versions=header.versions,
        about=header.about,
        state=_validated(STATE, read_part(folder, STATE_FILE, source), STATE_FILE, source),
        signatures=_validated(SHAPES, read_part(folder, SIGNATURES, source), SIGNATURES, source),
    )


def load_compiled(folder: Path, retriever: Retriever | None = None, reranker: Reranker | None = None) -> Program:
    """The compiled program in a folder, ready to be called.

    Raises:
        InputError: See `read_compiled` and `Compiled.build`.
    """
    return read_compiled(folder).build(retriever, reranker)


def uncompiled(name: str, options: Options | None = None) -> Program:
    """A program as written, without a retriever, to look at its predictors.

    Raises:
        InputError: If no program has that name.
    """
    return build_program(name, _NothingToSearch(), options=options)


class _NothingToSearch:
    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        raise RetrievalError("the program was built without an index", "Hand it a retriever")


def _check_can_be_rebuilt(program: Program) -> None:
    name = getattr(program, "name", type(program).__name__)
    if not isinstance(program, Program) or program_class(name) is not type(program):
        raise InputError(f"'{name}' is no program that can be loaded again", "Save a program that build_program made")
    if any("forward" in vars(module) for _, module in program.named_sub_modules(dspy.Module)):
        raise InputError(
            f"program '{name}' cannot be saved: its teleprompter has put its own forward in the place of the program's",
            "Use one that changes instructions or demonstrations",
        )
    fresh, held = shapes_of(uncompiled(name, program.options)), shapes_of(program)
    for predictor in sorted(fresh.keys() | held.keys()):
        if fresh.get(predictor) != held.get(predictor):
            raise InputError(
                f"program '{name}' cannot be saved: one built anew has not the same predictor '{predictor}'",
                "Change what its signatures say, not their fields or its predictors",
            )


def without_secrets(values: Any) -> Any:
    """Options, at any depth, without those that hold keys or addresses."""
    if isinstance(values, Mapping):
        return {name: without_secrets(value) for name, value in values.items() if name not in _SECRET}
    return [without_secrets(value) for value in values] if isinstance(values, list | tuple) else values


def _public(lm: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in lm.items() if name in (*_OF_LM, *LMSettings.model_fields)}


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version(package) for package in ("typedrag", "dspy")}}


def _validated(kind: TypeAdapter[Any], data: Any, name: str, source: str) -> Any:
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = shown(".".join(str(part) for part in first["loc"]))
        problem = f"{source}: {name} is not as typedrag writes it, at {where}: {cut(first['msg'])}"
        raise InputError(problem, "Copy the folder again, or compile again") from None


def _options(header: _Header, source: str) -> Options:
    try:
        return Options.model_validate(header.options).as_defaults()
    except ValidationError as error:
        # if one option is new and another gone, the one that is gone explains more
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        option = shown(".".join(str(part) for part in first["loc"]))
        gone = first["type"] == "extra_forbidden"
        reason = "which there is not" if gone else f"which cannot be as it was: {cut(first['msg'])}"
        raise InputError(f"{source} was compiled with option {option}, {reason}", "Compile it again") from None
