"""A compiled judge as a folder of JSON files, with checks of its agreement with people against its base.

It is loaded only for an LM with which it was shown to agree better; see `programs.artifact.saved` for the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import dspy
from pydantic import ConfigDict, JsonValue, ValidationInfo, field_validator

from typedrag.errors import InputError
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.programs.artifact.saved import SavedModule
from typedrag.programs.artifact.state import shapes_of, shown, state_of
from typedrag.records import Estimate
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

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


class SavedJudge(SavedModule):
    """A compiled judge that has been read, and not yet built.

    `judge` is the name of its target, such as `coverage-judge`, and `checks` are the latest by people's labels for each
    model.
    """

    noun = "judge"

    judge: str
    options: dict[str, JsonValue]
    about: dict[str, JsonValue]
    checks: tuple[JudgeCheck, ...]

    @field_validator("judge")
    @classmethod
    def _there_is(cls, name: str, info: ValidationInfo) -> str:
        if name not in _KINDS:
            raise InputError(
                f"{info.context} was compiled from a judge {shown(name)}, which there is not", "Update typedrag"
            )
        return name

    def check_by(self, scorer: str) -> JudgeCheck | None:
        """The check with a model; None if there was none."""
        return next((check for check in self.checks if check.scorer == scorer), None)

    def build(self) -> dspy.Module:
        """The judge, whether or not it is better; an `InputError` if its signatures have changed since."""
        return self.restored(_KINDS[self.judge].make(**self.options))


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
        about=dict(about or {}),
        checks=tuple(checks),
        state=state_of(judge),
        signatures=shapes_of(judge),
    )
    saved.write(folder, redact)


def load_judge(folder: Path, kind: str, scorer: str) -> dspy.Module:
    """Load a compiled judge that a check shows to agree better with people than its base.

    `kind` is the name of its target, and `scorer` the model that it will ask: a check with one LM does not hold for
    another.

    Raises:
        InputError: If it cannot be read or rebuilt, is of another kind, was not checked with this
            model, or does not agree better.
    """
    saved = SavedJudge.read(folder)
    if saved.judge != kind:
        raise InputError(f"{folder} holds a {saved.judge}, where a {kind} is needed", "Name another folder")
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
    """Write what a check found into a judge's folder, in the place of an earlier one with the same model."""
    saved = SavedJudge.read(folder)
    others = tuple(known for known in saved.checks if known.scorer != check.scorer)
    check = replace(check, date=check.date or datetime.now(UTC).isoformat(timespec="seconds"))
    saved.model_copy(update={"checks": (*others, check)}).write(folder)
