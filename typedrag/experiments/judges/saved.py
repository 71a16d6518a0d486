"""A compiled judge as a folder of JSON files, with checks of its agreement with people against its base.

It is loaded only for an LM with which it was shown to agree better; see `programs.artifact.folder` for the files.
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
from typedrag.experiments.compare.statistics import ALPHA
from typedrag.experiments.formats import format_p
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.programs.artifact.folder import SavedModule
from typedrag.programs.artifact.state import fields_of, state_of
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
        difference: The gain in agreement; None if there are no labels.
        p: p-value of the test of the gain, corrected for all `tests`.
        judge: The fingerprint of the compiled judge.
        tests: The number of compiled judges and models that were ever checked on these labels in this folder.
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
    p: float | None = None
    judge: str = ""
    tests: int = 1

    @property
    def is_better(self) -> bool:
        """True if the compiled judge agrees better with people, by more than chance."""
        return self.difference is not None and self.difference.value > 0 and self.p is not None and self.p < ALPHA

    def __str__(self) -> str:
        scores = f"{self.measure} {self.compiled or '–'}, before {self.base or '–'}"
        more = f", difference {self.difference}, p {format_p(self.p)}" if self.difference else ""
        return f"{scores}{more}, on {self.dataset}"


class SavedJudge(SavedModule):
    """A compiled judge that has been read, and not yet built.

    `judge` is the name of its target, such as `coverage-judge`, and `checks` are all by people's labels in its folder,
    the latest of each judge and model: also those of judges that it has replaced.
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
                f"{info.context} was compiled from a judge {name!r:.100}, which there is not", "Update typedrag"
            )
        return name

    def check_by(self, scorer: str) -> JudgeCheck | None:
        """The check of this judge with a model; None if there was none."""
        return next((check for check in self.checks if (check.judge, check.scorer) == (self.fingerprint, scorer)), None)

    def earlier_checks(self, check: JudgeCheck) -> list[JudgeCheck]:
        """The checks of other judges or models on the same labels."""
        labels = (check.dataset, check.dataset_fingerprint, check.split)
        same = [c for c in self.checks if (c.dataset, c.dataset_fingerprint, c.split) == labels]
        return [c for c in same if (c.judge, c.scorer) != (check.judge, check.scorer)]

    def build(self) -> dspy.Module:
        """The judge, whether or not it is better; an `InputError` if its signatures have changed since."""
        return self.restore(_KINDS[self.judge].make(**self.options))


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
        signatures=fields_of(judge),
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
        others = ", ".join(c.scorer for c in saved.checks if c.judge == saved.fingerprint)
        others = f", only with {others}" if others else ""
        raise InputError(f"the judge in {folder} was not checked by people's labels with '{scorer}'{others}", _CHECK)
    if not check.is_better:
        raise InputError(
            f"the judge in {folder} was not shown to agree better with people than the one it was made from ({check})",
            "Use that one: leave out the option",
        )
    return saved.build()


def add_check(folder: Path, check: JudgeCheck) -> None:
    """Write the result of a check into a judge's folder, in the place of an earlier one with the same model."""
    saved = SavedJudge.read(folder)
    same = (check.judge, check.scorer)
    others = tuple(known for known in saved.checks if (known.judge, known.scorer) != same)
    check = replace(check, date=check.date or datetime.now(UTC).isoformat(timespec="seconds"))
    saved.model_copy(update={"checks": (*others, check)}).write(folder)
