"""A compiled judge as a folder of JSON files, as programs are saved, with tests of its agreement with people.

It is loaded only for an LM with which it was shown to agree better than its base.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import dspy
from pydantic import ConfigDict, JsonValue, ValidationInfo, field_validator

from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.datasets import Dataset
from typedrag.experiments.formats import format_p
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.programs.artifact import SavedModule, dump_state, signature_fields
from typedrag.programs.compiled import CompiledAbout, Verdict
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

_CHECK = "Check it by labels that it was not compiled on: typedrag research judges check --compiled FOLDER"


_KINDS: Mapping[str, tuple[type[dspy.Module], tuple[str, ...]]] = {
    "linkage-judge": (LinkageJudge, ("convention",)),
    "coverage-judge": (CoverageJudge, ("sub_questions_per_call",)),
    "sub-question-typer": (SubQuestionTyper, ()),
}
"""The judges that can be saved: their classes, and the options that they are made with."""


@dataclass(frozen=True)
class JudgeCheck:
    """The test of a compiled judge against its base, on people's labels of a test split, with the model that both ask.

    `judge` is the compiled judge's fingerprint. `p` is corrected for all `tests` of compiled judges and models that
    were ever made on these labels in this folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    scorer: str
    judge: str
    dataset: str
    dataset_fingerprint: str
    base: Estimate | None = None
    compiled: Estimate | None = None
    difference: Estimate | None = None
    verdict: Verdict = ""
    p: float | None = None
    tests: int = 1
    date: str = ""

    @property
    def is_better(self) -> bool:
        return self.verdict == "better"

    def __str__(self) -> str:
        more = f", difference {self.difference}, p {format_p(self.p)}" if self.difference else ""
        return f"agreement {self.compiled or '–'}, before {self.base or '–'}{more}, on {self.dataset}"


class SavedJudge(SavedModule):
    """A compiled judge that has been read, and not yet built.

    `judge` is the name of its target, such as `coverage-judge`, and `checks` are all by people's labels in its folder,
    the latest of each judge and model: also those of judges that it has replaced.
    """

    noun = "judge"

    judge: str
    options: dict[str, JsonValue]
    about: CompiledAbout
    checks: tuple[JudgeCheck, ...]

    @field_validator("options")
    @classmethod
    def _check_kind(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        kind = info.data.get("judge", "")
        if kind and kind not in _KINDS:
            problem = f"{info.context} was compiled from a judge {kind!r:.100}, which there is not"
            raise InputError(problem, "Update typedrag")
        if kind and options.keys() != set(_KINDS[kind][1]):
            problem = f"{info.context} has other options than a {kind} has: {', '.join(options):.100}"
            raise InputError(problem, "Compile it again")
        return options

    def find_check(self, scorer: str) -> JudgeCheck | None:
        return next((check for check in self.checks if (check.judge, check.scorer) == (self.fingerprint, scorer)), None)

    def count_tests(self, scorer: str, dataset: Dataset) -> int:
        on_these = {(c.judge, c.scorer) for c in self.checks if c.dataset_fingerprint == dataset.fingerprint}
        return len(on_these | {(self.fingerprint, scorer)})

    def build(self) -> dspy.Module:
        """The judge, whether or not it is better; an `InputError` if its signatures have changed since."""
        return self.restore(_KINDS[self.judge][0](**self.options))


def save_judge(
    judge: dspy.Module, folder: Path, about: CompiledAbout | None = None, *, redact: Callable[[str], str] = str
) -> None:
    """Save a judge to a folder atomically, in the place of an earlier one, whose checks are kept.

    Its LMs are not saved; `about` is how it was compiled.
    """
    kind = next((name for name, (cls, _) in _KINDS.items() if type(judge) is cls), None)
    if kind is None:
        raise InputError(f"a {type(judge).__name__} is no judge that can be saved", f"Judges: {', '.join(_KINDS)}")
    try:
        checks = SavedJudge.read(folder).checks
    except InputError:  # there is none yet
        checks = ()
    saved = SavedJudge(
        judge=kind,
        options={name: getattr(judge, name) for name in _KINDS[kind][1]},
        about=(about or CompiledAbout()).to_save(),
        checks=checks,
        state=dump_state(judge),
        signatures=signature_fields(judge),
    )
    saved.write(folder, redact)


def load_judge(folder: Path, kind: str, scorer: str) -> dspy.Module:
    """Load a compiled judge that a check shows to agree better with people than its base.

    `kind` is the name of its target, and `scorer` the model that it will ask: a check with one LM does not hold for
    another.
    """
    saved = SavedJudge.read(folder)
    if saved.judge != kind:
        raise InputError(f"{folder} holds a {saved.judge}, where a {kind} is needed", "Name another folder")
    check = saved.find_check(scorer)
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


def add_check(folder: Path, check: JudgeCheck) -> JudgeCheck:
    """Write the result of a check, with its date, into a judge's folder; one with the same model is replaced."""
    saved = SavedJudge.read(folder)
    same = (check.judge, check.scorer)
    others = tuple(known for known in saved.checks if (known.judge, known.scorer) != same)
    check = replace(check, date=check.date or datetime.now(UTC).isoformat(timespec="seconds"))
    saved.model_copy(update={"checks": (*others, check)}).write(folder)
    return check
