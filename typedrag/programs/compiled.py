"""Compiled programs: where they came from, and how they are saved and built again; see `artifact`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import dspy
from pydantic import ConfigDict, Field, FiniteFloat, JsonValue, ValidationError, ValidationInfo, field_validator

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Estimate, Passage
from typedrag.programs.artifact import Line, LMSettings, SavedModule, dump_state, signature_fields
from typedrag.programs.options import Options
from typedrag.programs.program import Program, build_program, program_class
from typedrag.retrieval import BM25Setting, Reranker, Retriever

logger = logging.getLogger(__name__)

_SECRET = ("api_key", "api_base", "base_url", "headers", "extra_headers", "model_list")
_LM_FIELDS = frozenset({"spec", "adapter", *LMSettings.model_fields})  # what is saved of an LM
PROGRAM = "program.json"

Verdict = Literal["better", "worse", "less truthful", "unchanged", ""]
"""The compiled program against the one before, by the compile's objective; empty if the difference may be chance, and
`unchanged` if the compile found nothing better, so that the two are the same.
A program whose answers are less truthful by more than chance is never better, whatever else it gained."""


@dataclass(frozen=True)
class Change(Estimate):
    """A mean difference, question by question, with its 95 % interval and the p of its paired test."""

    p: FiniteFloat | None = None


@dataclass(frozen=True)
class CompiledAbout:
    """The origin and the scores of a compiled program, in plain values.

    Attributes:
        metric: What it was compiled against, such as `linkage=1,coverage=0.5`.
        metric_options: By metric, its options that are not the default.
        optimizer: The name of the optimizer.
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
        verdict: `better`, `worse` or `less truthful` than the program before, or `unchanged`; empty if that cannot be
            told.
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
    base: Mapping[str, Estimate] = field(default_factory=dict)
    compiled: Mapping[str, Estimate] = field(default_factory=dict)
    differences: Mapping[str, Change] = field(default_factory=dict)
    verdict: Verdict = ""
    p: FiniteFloat | None = None
    tests: int = 1
    lms: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    created: str = ""

    def to_save(self) -> CompiledAbout:
        return replace(
            self,
            created=self.created or datetime.now(UTC).isoformat(timespec="seconds"),
            optimizer_options=without_secrets(self.optimizer_options),
            lms={
                role: {name: value for name, value in lm.items() if name in _LM_FIELDS} for role, lm in self.lms.items()
            },
        )


class Compiled(SavedModule):
    """A compiled program that has been read, and not yet built.

    `program`, `options`, the specs `reranker` and `retriever`, and `bm25`, the settings `k1` and `b`, are those that it
    was compiled with. `retriever` is empty where it is not known, and of `bm25` those are missing that are the index's.
    """

    noun = "program"

    program: Line
    options: Options
    reranker: Line
    retriever: Line | Literal[""] = ""
    bm25: dict[BM25Setting, FiniteFloat] = Field(default_factory=dict)
    about: CompiledAbout

    @field_validator("program")
    @classmethod
    def _there_is(cls, name: str, info: ValidationInfo) -> str:
        try:
            return program_class(name).name
        except InputError as error:
            problem = f"{info.context} was compiled from a program {name!r:.100}, which there is not"
            raise InputError(problem, error.hint) from None

    @field_validator("options", mode="wrap")
    @classmethod
    def _there_are(cls, values: Any, read: Callable[[Any], Options], info: ValidationInfo) -> Options:
        try:
            return read(values).as_defaults()
        except ValidationError as error:
            # where an option has come and another gone, the one that is gone says more
            first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
            if not first["loc"]:
                raise
            option = ".".join(str(part) for part in first["loc"])
            gone = first["type"] == "extra_forbidden"
            reason = "which there is not" if gone else f"which cannot be as it was: {first['msg']:.300}"
            problem = f"{info.context} was compiled with option {option!r:.100}, {reason}"
            raise InputError(problem, "Compile it again") from None

    @property
    def retrieves(self) -> bool:
        return program_class(self.program).retrieves

    def build(
        self, retriever: Retriever | None = None, reranker: Reranker | None = None, options: Options | None = None
    ) -> Program:
        """The program, ready to be called, with its own options or others.

        Its reranker is not loaded by itself, since the folder may come from a stranger.
        """
        program = self.restore(program_class(self.program)(retriever, reranker, options or self.options))
        if self.other_versions:
            logger.warning("%s was compiled with %s", self.source, self.other_versions)
        return program

    def without_index(self, options: Options | None = None) -> Program:
        """The program for the sake of those of its modules that search nothing, or of what `build` would refuse."""
        return self.restore(build_without_index(self.program, options or self.options))


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
    """
    name = getattr(program, "name", type(program).__name__)
    if not isinstance(program, Program) or program_class(name) is not type(program):
        raise InputError(f"'{name}' is no program that can be loaded again", "Save a program that build_program made")
    if any("forward" in vars(module) for _, module in program.named_sub_modules(dspy.Module)):
        raise InputError(
            f"program '{name}' cannot be saved: its optimizer has put its own forward in the place of the program's",
            "Use one that changes instructions or demonstrations",
        )
    fresh, held = signature_fields(build_without_index(name, program.options)), signature_fields(program)
    for predictor in sorted(fresh.keys() | held.keys()):
        if fresh.get(predictor) != held.get(predictor):
            raise InputError(
                f"program '{name}' cannot be saved: a newly built one lacks the predictor '{predictor}'",
                "Change what its signatures say, not their fields or its predictors",
            )
    compiled = Compiled(
        program=program.name,
        options=program.options,
        reranker=reranker,
        retriever=retriever,
        bm25=dict(bm25 or {}),
        about=(about or CompiledAbout()).to_save(),
        state=dump_state(program),
        signatures=held,
    )
    compiled.write(folder, redact)


def build_without_index(name: str, options: Options | None = None) -> Program:
    """A program as written, without a retriever, to look at its predictors."""
    return build_program(name, _NothingToSearch(), options=options)


class _NothingToSearch:
    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        raise RetrievalError("the program was built without an index", "Hand it a retriever")


def without_secrets(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: without_secrets(value) for name, value in values.items() if name not in _SECRET}
    return [without_secrets(value) for value in values] if isinstance(values, list | tuple) else values
