"""Compiles for tests that make none: their candidates, and what they say of themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy

from tests.programs.artifact.test_compiled import ABOUT, compiled
from typedrag.core.records import Estimate
from typedrag.core.redaction import Redactor
from typedrag.experiments.config import TrackingConfig
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.lms.cost import Spending
from typedrag.optimizers.compile import HeldOut
from typedrag.optimizers.compile.optimize import CompileOutcome
from typedrag.optimizers.compile.prompt_optimizers.candidates import Candidate
from typedrag.optimizers.compile.run import CompileResult, log_compile
from typedrag.programs import Options
from typedrag.programs.compiled import CompiledAbout, save_compiled

OBJECTIVE = "objective/score"


def about(compiled: float | None = 0.6, base: float = 0.5, n: int = 100, **changes: Any) -> CompiledAbout:
    """Of a program that was compiled from one that scores 0.5 and scores 0.6 itself."""
    scores = {"base": base, "compiled": compiled}
    found = {
        side: {} if value is None else {OBJECTIVE: Estimate(value, value - 0.1, value + 0.1, n)}
        for side, value in scores.items()
    }
    return replace(ABOUT, **{**found, **changes})


def candidate(number: int, score: float, *, n: int = 20, best: bool = False, how: str = "proposed") -> Candidate:
    calls = 40 * (number + 1)
    return Candidate(number, f"state{number}", how, score, 0.4, n, 20, 1, 2, ("answer",), calls, 150 * calls, best)


CANDIDATES = (
    candidate(0, 0.4, best=True, how="as it is"),
    candidate(1, 0.35),
    candidate(2, 0.9, n=5),
    candidate(3, 0.55, best=True, how="<b>proposed</b>"),
)


def tracker(uri: str, experiment: str = "compiles", redact: Any = Redactor([]), notify: Any = print) -> Tracker:  # noqa: B008
    return Tracker(TrackingConfig(uri=uri, experiment=experiment), redact, notify)


def result(folder: Path, **parts: Any) -> CompileResult:
    """The result of a compile that has written a program or a judge to a folder."""
    outcome: Any = CompileOutcome(dspy.Module(), (), Spending(), "")
    given = {"target": "program", "outcome": outcome, "test": HeldOut(None, {}, {}), "spent": Spending(), **parts}
    return CompileResult(folder=folder, **given)


def register(uri: str, out: Path, name: str, said: CompiledAbout, top_k: int = 3) -> str:
    """A compile that finds one candidate, and its registered version."""
    save_compiled(compiled("rag", Options(top_k=top_k)), out / "program", said)
    run = tracker(uri)
    run.begin_folder(out, {}, kind="compile")
    return log_compile(run, (), result(out / "program"), "program", register_as=name)
