"""Log compiles to MLflow: candidates as nested runs and a chart, the scores of the test, the program as a model."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedrag.core.redaction import redact_values
from typedrag.experiments import formats
from typedrag.experiments.compare import ALL, Difference
from typedrag.experiments.judges.saved import SavedJudge
from typedrag.experiments.tracking.registry import log_model
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.optimizers.compile.teleprompters.candidates import Candidate
from typedrag.programs.artifact import has_file
from typedrag.programs.compiled import PROGRAM, Compiled, CompiledAbout

if TYPE_CHECKING:
    from typedrag.optimizers.compile.run import CompileResult

RISK = "risk"
"""The tag for the risk of optimizing the named metrics, in a compile or a sweep."""
PAGE = Path(__file__).with_name("trajectory_page")
_TARGET, _NUMBER = "typedrag.target", "typedrag.candidate"
_NUMBERS = ("score", "base", "n", "failed", "unjudged", "lm_calls", "tokens")
_INK, _ALL, _BEST = "#7d828b", "#3f83cf", "#d9662f"
"""Colours that can be read on light and on dark pages."""


def log_candidates(tracker: Tracker, candidates: Sequence[Candidate], target: str) -> None:
    if tracker.works:
        with tracker.attempt("a candidate", "It and the others are logged at the end"):
            _log_candidates(tracker, candidates, target)


def _log_candidates(tracker: Tracker, candidates: Sequence[Candidate], target: str) -> None:
    best = None
    for candidate in candidates:
        best = candidate.score if candidate.best else best
        tags = {_TARGET: target, _NUMBER: str(candidate.number)}
        nested = tracker.child(f"candidate {candidate.number}", tags)
        if nested.finished:
            continue
        nested.log({name: getattr(candidate, name) for name in _NUMBERS})
        texts = {"how": candidate.how, "state": candidate.state, "changed": ", ".join(candidate.changed)}
        nested.log_settings({name: text for name, text in texts.items() if text})
        curves = {"candidate/score": candidate.score, "candidate/best": best}
        curves |= {"spent/lm_calls": candidate.lm_calls, "spent/tokens": candidate.tokens}
        tracker.log({name: value for name, value in curves.items() if value is not None}, step=candidate.number)
        nested.end()  # last: it marks the candidate as logged


def log_compile(
    tracker: Tracker,
    candidates: Sequence[Candidate],
    result: CompileResult | None,
    target: str,
    *,
    risk: str = "",
    stopped: str = "",
    register_as: str | None = None,
) -> str:
    """Log a compile; return the registered version as `models:/NAME/VERSION`, empty if there is none."""
    if not tracker.id:
        return ""
    version = ""
    with tracker.attempt(f"compile '{tracker.name}'", "Nothing is lost: log it with --resume"):
        _log_candidates(tracker, candidates, target)
        if candidates:
            rows = [{"target": target, **asdict(c), "changed": ", ".join(c.changed)} for c in candidates]
            tracker.table("candidates.json", rows)
            shown = [Candidate.from_dict(redact_values(asdict(c), tracker.redact)) for c in candidates]
            tracker.artifact("trajectory.html", render_candidates(shown, target, tracker.name, risk))
        tracker.tag({"stopped": stopped})
        if result is not None:
            tracker.artifact("result.json", json.dumps(result.to_dict(), ensure_ascii=False, indent=1) + "\n")
            last = max((candidate.number for candidate in candidates), default=0)
            tracker.log(result.spent.metrics, step=1 + last)  # the curves' last point
            tracker.artifacts(result.folder, result.folder.name)
            is_program = has_file(result.folder, PROGRAM)
            about = (Compiled if is_program else SavedJudge).read(result.folder).about
            tracker.log(dict(_test_metrics(about, result.test.differences)))
            tracker.tag({"verdict": about.verdict})
            if is_program:
                version = log_model(tracker, result.folder, register_as)
        tracker.end(stopped=result is None)
    return version


def _test_metrics(about: CompiledAbout, differences: Sequence[Difference]) -> Iterator[tuple[str, float]]:
    """Yield metrics such as `test/compiled/linkage/mrr` overall and `test/compiled/linkage/mrr/reason` by type."""
    estimates = {f"base/{measure}": score for measure, score in about.base.items()}
    estimates |= {f"compiled/{measure}": score for measure, score in about.compiled.items()}
    if about.p is not None:
        yield "test/p", about.p
    for d in differences:
        name = d.measure if d.stratum == ALL else f"{d.measure}/{d.stratum.name}"
        for side, estimate in (("base", d.baseline), ("compiled", d.other), ("difference", d.difference)):
            if estimate is not None:
                estimates[f"{side}/{name}"] = estimate
        if d.p is not None:
            yield f"test/p/{name}", d.p
    for name, estimate in estimates.items():
        yield f"test/{name}", estimate.value
        for part in ("low", "high", "n"):
            if (value := getattr(estimate, part)) is not None:
                yield f"test/{name}/{part}", float(value)


def render_candidates(candidates: Sequence[Candidate], target: str, title: str, risk: str = "") -> str:
    """The chart and table of one or more candidates as an HTML page, whose policy allows no script and no loading."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    best = [c for c in candidates if c.best]
    inks: dict[Any, Any] = dict.fromkeys(("xtick.color", "ytick.color", "axes.labelcolor", "axes.edgecolor"), _INK)
    content = io.BytesIO()
    with rc_context({**inks, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel="LM calls", ylabel="score", xlim=(0, 1.03 * max(1, *(c.lm_calls for c in candidates))))
        axes.grid(axis="y", color=_INK, alpha=0.25)
        axes.axhline(candidates[0].score, color=_INK, linestyle="--")
        for on_all, face in ((True, _ALL), (False, "none")):
            points = [(c.lm_calls, c.score) for c in candidates if c.full_valset is on_all]
            axes.scatter(*zip(*points, strict=True) if points else ([], []), facecolor=face, edgecolor=_ALL, zorder=3)
        if best:
            calls = [*(c.lm_calls for c in best), candidates[-1].lm_calls]
            axes.step(calls, [*(c.score for c in best), best[-1].score], color=_BEST, where="post")
        figure.savefig(content, format="svg", transparent=True)
    chart = f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"
    filters: dict[str, Any] = {"value": formats.format_value, "count": formats.format_count}
    shown: dict[str, Any] = {"candidates": candidates, "chart": chart}
    return formats.render_page(PAGE, filters, title=title, risk=risk, target=target, **shown)
