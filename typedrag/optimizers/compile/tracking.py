"""Log compiles to MLflow: the candidates as nested runs, the scores on the test split, the program as a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from typedrag.experiments.compare.compare import ALL, Difference
from typedrag.experiments.tracking.registry import log_model
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.optimizers.compile.teleprompters import Candidate
from typedrag.optimizers.compile.trajectory_chart import render_trajectories
from typedrag.programs.artifact.compiled import PROGRAM, Compiled, CompiledAbout
from typedrag.programs.artifact.folder import has_part
from typedrag.records import Estimate
from typedrag.redaction import cleaned

if TYPE_CHECKING:
    from typedrag.optimizers.compile.run import CompileResult

RISK = "risk"
"""The tag for the risk of optimizing the named metrics, in a compile or a sweep."""
_TARGET, _NUMBER = "typedrag.target", "typedrag.candidate"
_NUMBERS = ("score", "base", "n", "failed", "unjudged", "lm_calls", "tokens")
_TEXTS = ("how", "state", "lm")


def log_candidates(tracker: Tracker, target: str, candidates: Sequence[Candidate], *, several: bool) -> None:
    """Log a target's candidates as far as they are not logged yet.

    Each is a nested run, and a point of the compile's curves, whose step is its number.

    Args:
        several: The compile has several targets, so that names of runs and metrics name the target.
    """
    if tracker.works:
        with tracker.attempt("a candidate", "It and the others are logged at the end"):
            _log_candidates(tracker, target, candidates, several)


def log_compile(
    tracker: Tracker,
    candidates: Mapping[str, Sequence[Candidate]],
    result: CompileResult | None,
    *,
    several: bool = False,
    risk: str = "",
    stopped: str = "",
    register_as: str | None = None,
) -> str:
    """Log a compile; return the registered version as `models:/NAME/VERSION`, empty if there is none.

    Args:
        candidates: All candidates by target.
        result: None if a fault ended the compile.
        several: See `log_candidates`.
        risk: The risk of compiling against these metrics, shown on the page.
        stopped: Why the compile stopped; empty if it came to its end.
        register_as: The registered model that the program becomes a version of; None registers nothing.
    """
    if not tracker.id:
        return ""
    version = ""
    with tracker.attempt(f"compile '{tracker.name}'", "Nothing is lost: log it with --resume"):
        for target, of_target in candidates.items():
            _log_candidates(tracker, target, of_target, several)
        if candidates:
            rows = [{"target": target, **_values(c)} for target, of_target in candidates.items() for c in of_target]
            tracker.table("candidates.json", rows)
            shown = {
                target: [Candidate.from_dict(cleaned(asdict(c), tracker.redact)) for c in of_target]
                for target, of_target in candidates.items()
            }
            tracker.artifact("trajectory.html", render_trajectories(shown, tracker.name, risk))
        tracker.tag({"stopped": stopped})
        if result is not None:
            tracker.artifact("result.json", json.dumps(result.to_dict(), ensure_ascii=False, indent=1) + "\n")
            numbers = (candidate.number for of_target in candidates.values() for candidate in of_target)
            tracker.log(result.spent.metrics, step=1 + max(numbers, default=0))  # the curves' last point
            tracker.artifacts(result.folder, result.folder.name)
            if has_part(result.folder, PROGRAM):
                about = Compiled.read(result.folder).about
                tracker.log(dict(_test_metrics(about, result.test.differences if result.test else ())))
                tracker.tag({"verdict": about.verdict})
                version = log_model(tracker, result.folder, register_as)
        tracker.end(stopped=result is None)
    return version


def _log_candidates(tracker: Tracker, target: str, candidates: Sequence[Candidate], several: bool) -> None:
    suffix = "/" + re.sub(r"[^\w. -]", "_", target) if several else ""
    best = None
    for candidate in candidates:
        best = candidate.score if candidate.best else best
        name = f"{target if several else 'candidate'} {candidate.number}"
        nested = tracker.child(name, {_TARGET: target, _NUMBER: str(candidate.number)})
        if nested.finished:
            continue
        values = _values(candidate)
        nested.log({name: values[name] for name in _NUMBERS})
        nested.log_settings({name: values[name] for name in (*_TEXTS, "changed") if values[name]})
        curves = {"candidate/score": candidate.score, "candidate/best": best}
        curves |= {"spent/lm_calls": candidate.lm_calls, "spent/tokens": candidate.tokens}
        points = {f"{name}{suffix}": value for name, value in curves.items() if value is not None}
        tracker.log(points, step=candidate.number)
        nested.end()  # last: it marks the candidate as logged


def _values(candidate: Candidate) -> dict[str, Any]:
    return {**asdict(candidate), "changed": ", ".join(candidate.changed)}


def _test_metrics(about: CompiledAbout, differences: Sequence[Difference]) -> Iterator[tuple[str, float]]:
    """Yield metrics such as `test/compiled/linkage/mrr` overall and `test/compiled/linkage/mrr/reason` by type."""
    for side, scores in (("base", about.base), ("compiled", about.compiled)):
        for measure, score in scores.items():
            yield from _score_metrics(f"test/{side}/{measure}", score)
    if about.p is not None:
        yield "test/p", about.p
    for d in differences:
        suffix = "" if d.stratum == ALL else f"/{d.stratum.name}"
        for side, estimate in (("base", d.baseline), ("compiled", d.other), ("difference", d.difference)):
            if estimate is not None:
                yield from _score_metrics(f"test/{side}/{d.measure}{suffix}", estimate)
        if d.p is not None:
            yield f"test/p/{d.measure}{suffix}", d.p


def _score_metrics(name: str, score: Estimate) -> Iterator[tuple[str, float]]:
    yield name, score.value
    for part in ("low", "high", "n"):
        if (value := getattr(score, part)) is not None:
            yield f"{name}/{part}", float(value)
