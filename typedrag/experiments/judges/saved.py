"""A compiled judge as a folder of JSON files, with checks of its agreement with people against its base.

`judge.json` holds the kind of judge, its options, the facts about its compile, and its checks on
people's labels; `state.json` and `signatures.json` are those of a compiled program. A judge is loaded
only for an LM with which a check shows it to agree better than its base.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from typedrag.errors import InputError
from typedrag.metrics.arithmetic.estimate import Estimate
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.programs.artifact.fingerprints import SHAPES, Shape
from typedrag.programs.artifact.json_folder import has_part, read_part, write_parts
from typedrag.programs.artifact.state import STATE, State, fingerprint, restore, shapes_of, state_of
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

FORMAT = 1
JUDGE, STATE_FILE, SIGNATURES = "judge.json", "state.json", "signatures.json"
_CHECK = "Check it by labels that it was not compiled on: typedrag judges check --compiled FOLDER"


class _Kind(NamedTuple):
    """A judge that can be saved: its class, and the options that it is rebuilt with."""

    make: Callable[..., dspy.Module]
    options: Callable[[Any], dict[str, JsonValue]]


_KINDS: Mapping[str, _Kind] = {
    "linkage-judge": _Kind(LinkageJudge, lambda judge: {"convention": judge.convention.value}),
    "coverage-judge": _Kind(CoverageJudge, lambda judge: {"sub_questions_per_call": judge.sub_questions_per_call}),
    "sub-question-typer": _Kind(SubQuestionTyper, lambda judge: {}),
}


@dataclass(frozen=True)
class JudgeCheck:
    """The agreement of a compiled judge, and of its base before compiling, with people's labels.

    Attributes:
        scorer: The model that both asked.
        measure: The measure of agreement, named as in `typedrag judges check`.
        base: The base's agreement; None if it is undefined.
        compiled: The compiled judge's agreement on the same labels.
        difference: The gain in agreement; None if it is undefined, as on the labels of few questions.
        split: The split of the dataset, which the judge was not compiled on.
        failed: The number of examples that lack a judgment of either, and are not compared.
        date: The date in UTC.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    scorer: str
    measure: str
    base: Estimate | None
    compiled: Estimate | None
    dataset: str
    difference: Estimate | None = None
    dataset_fingerprint: str = ""
    split: str = "test"
    failed: int = 0
    date: str = ""

    @property
    def is_better(self) -> bool:
        """True if the compiled judge agrees better with people, by an interval that excludes 0."""
        return self.difference is not None and self.difference.low > 0

    def __str__(self) -> str:
        scores = f"{self.measure} {self.compiled or '–'}, before {self.base or '–'}"
        more = f", difference {self.difference}" if self.difference else ""
        return f"{scores}{more}, on {self.dataset}"


class SavedJudge(BaseModel):
    """A compiled judge that was read, but not built: the contents of `judge.json` and of the two other files.

    `kind` is the name of its target, such as `coverage-judge`, `checks` the latest check on people's labels with each
    model, and `source` the place that it was read from, for messages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    kind: str = Field(alias="judge")
    options: dict[str, JsonValue]
    versions: dict[str, str]
    about: dict[str, JsonValue]
    checks: tuple[JudgeCheck, ...]
    source: str = Field(default="", exclude=True)
    state: State = Field(default={}, exclude=True)
    signatures: Mapping[str, Shape] = Field(default={}, exclude=True)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its state: judges with the same one send the same prompts."""
        return fingerprint(self.state)

    def check_by(self, scorer: str) -> JudgeCheck | None:
        """The check with a model; None if there was none."""
        return next((check for check in self.checks if check.scorer == scorer), None)

    def build(self) -> dspy.Module:
        """Build the judge, better or not; an `InputError` if its signatures have changed since it was saved."""
        judge = _KINDS[self.kind].make(**self.options)
        try:
            restore(judge, self.state, self.signatures)
        except InputError as error:
            raise InputError(f"{self.source} cannot be loaded: {error.problem}", "Compile it again") from None
        return judge


def save_judge(
    judge: dspy.Module,
    folder: Path,
    *,
    about: Mapping[str, Any] | None = None,
    checks: Sequence[JudgeCheck] = (),
    redact: Callable[[str], str] = str,
) -> None:
    """Save a judge to a folder atomically, in the place of an earlier one.

    Its LMs are not saved. `about` holds facts about its compile as JSON values: metric, optimizer, dataset.

    Raises:
        InputError: If judges of this class cannot be saved, or the folder cannot be written.
    """
    kind = next((name for name, known in _KINDS.items() if type(judge) is known.make), None)
    if kind is None:
        raise InputError(f"a {type(judge).__name__} is no judge that can be saved", f"Judges: {', '.join(_KINDS)}")
    saved = SavedJudge(
        judge=kind,
        options=_KINDS[kind].options(judge),
        versions={"python": platform.python_version(), **{p: version(p) for p in ("typedrag", "dspy")}},
        about=dict(about or {}),
        checks=tuple(checks),
        state=state_of(judge),
        signatures=shapes_of(judge),
    )
    _write(saved, folder, redact)


def read_judge(folder: Path) -> SavedJudge:
    """Read a compiled judge from a folder, and validate it as far as possible without building it.

    Raises:
        InputError: If the folder holds no compiled judge, lacks a part, or has a newer format.
    """
    source = str(folder)
    data = read_part(folder, JUDGE, source) if has_part(folder, JUDGE) else None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise InputError(f"{source} is no compiled judge", "Name a folder that typedrag compile has written")
    if data["format"] != FORMAT:
        mend = "Update typedrag" if data["format"] > FORMAT else "Compile it again"
        raise InputError(f"{source} is a compiled judge of format {data['format']}; this typedrag reads {FORMAT}", mend)
    saved = _validated(TypeAdapter(SavedJudge), data, JUDGE, source)
    if saved.kind not in _KINDS:
        raise InputError(f"{source} was compiled from a judge {saved.kind!r}, which there is not", "Update typedrag")
    state = _validated(STATE, read_part(folder, STATE_FILE, source), STATE_FILE, source)
    signatures = _validated(SHAPES, read_part(folder, SIGNATURES, source), SIGNATURES, source)
    return saved.model_copy(update={"source": source, "state": state, "signatures": signatures})


def load_judge(folder: Path, kind: str, scorer: str) -> dspy.Module:
    """Load a compiled judge that a check shows to agree better with people than its base.

    `kind` is the name of its target, and `scorer` the model that it will ask: a check with one LM does not hold for
    another.

    Raises:
        InputError: If it cannot be read or rebuilt, is of another kind, was not checked with this
            model, or does not agree better.
    """
    saved = read_judge(folder)
    if saved.kind != kind:
        raise InputError(f"{folder} holds a {saved.kind}, where a {kind} is needed", "Name another folder")
    check = saved.check_by(scorer)
    if check is None:
        others = f", only with {', '.join(c.scorer for c in saved.checks)}" if saved.checks else ""
        raise InputError(f"the judge in {folder} was not checked by people's labels with '{scorer}'{others}", _CHECK)
    if check.difference is None and check.base and check.compiled:
        raise InputError(f"the judge in {folder} was checked on too few questions to tell ({check})", _CHECK)
    if not check.is_better:
        raise InputError(
            f"the judge in {folder} was not shown to agree better with people than the one it was made from ({check})",
            "Use that one: leave out the option",
        )
    return saved.build()


def add_check(folder: Path, check: JudgeCheck) -> None:
    """Write a check into a judge's folder, in the place of an earlier check with the same model."""
    saved = read_judge(folder)
    others = tuple(known for known in saved.checks if known.scorer != check.scorer)
    check = replace(check, date=check.date or datetime.now(UTC).isoformat(timespec="seconds"))
    _write(saved.model_copy(update={"checks": (*others, check)}), folder, str)


def _write(saved: SavedJudge, folder: Path, redact: Callable[[str], str]) -> None:
    parts = {
        JUDGE: saved.model_dump(mode="json", by_alias=True),
        STATE_FILE: STATE.dump_python(dict(saved.state), mode="json"),
        SIGNATURES: SHAPES.dump_python(dict(saved.signatures), mode="json"),
    }
    write_parts(folder, parts, redact)


def _validated(kind: TypeAdapter[Any], data: Any, name: str, source: str) -> Any:
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = f"{source}: {name} is not as typedrag writes it, at '{where[:100]}': {first['msg'][:200]}"
        raise InputError(problem, "Copy the folder again, or compile again") from None
