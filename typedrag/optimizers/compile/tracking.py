"""Log compiles to MLflow: a run for each, a nested run for each candidate, and the compiled program as a model."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from typedrag.experiments.compare.compare import ALL, Difference
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.loading import ARTIFACT
from typedrag.experiments.tracking.mlflow_store import faults_of_store
from typedrag.experiments.tracking.registration import check_model_name, copy_redacted, log_model, register_model
from typedrag.experiments.tracking.tracked_run import MEND, PARENT, TrackedRun, flat, note, noted, table_of
from typedrag.lms.spending import Spending
from typedrag.optimizers.compile.teleprompters import Candidate
from typedrag.optimizers.compile.trajectory_chart import render_trajectories
from typedrag.programs.artifact.compiled import PROGRAM, Compiled, CompiledAbout
from typedrag.programs.artifact.json_folder import has_part
from typedrag.records import Estimate
from typedrag.redaction import Redactor, cleaned

CANDIDATES, TRAJECTORY, RESULT, JUDGE = "candidates.json", "trajectory.html", "result.json", "judge"
RISK = "risk"
"""The tag for the risk of optimizing the named metrics, in a compile or a sweep."""
_TARGET, _NUMBER = "typedrag.target", "typedrag.candidate"
_NUMBERS = ("score", "base", "n", "failed", "unjudged", "lm_calls", "tokens")
_TEXTS = ("how", "state", "lm", "changed")


class CompileTracker:
    """Logs a compile to MLflow, unless tracking is off.

    Args:
        config: The settings of tracking.
        redact: Hides keys and addresses.
        on_notice: Called with what could not be logged. Once the run exists, such faults do not end the compile.
        register_as: The name of the registered model that the compiled program becomes a version of;
            None registers nothing.

    Raises:
        InputError: If nothing can be registered under that name.
    """

    def __init__(
        self,
        config: TrackingConfig,
        redact: Redactor,
        on_notice: Callable[[str], None],
        *,
        register_as: str | None = None,
    ) -> None:
        if register_as is not None:
            check_model_name(register_as)
        self._run = TrackedRun(config, redact, on_notice)
        self._redact = redact
        self._register_as = register_as
        self._name, self._risk, self._several = "", "", False
        self._seen: dict[str, list[Candidate]] = {}
        self._told: set[tuple[str, int]] = set()
        self._begun: dict[tuple[str, int], str] = {}

    def begin(
        self, folder: Path, name: str, settings: Mapping[str, Any], targets: Sequence[str] = (), risk: str = ""
    ) -> None:
        """Begin MLflow's run, or continue the earlier run of the compile in this folder.

        Args:
            folder: The folder of the compile; the run's id is noted in it.
            name: The name of the run.
            settings: The settings that the compile depends on, as JSON values.
            targets: The names of the targets; with several, they are suffixes of metrics.
            risk: The risk of compiling against these metrics; logged as a tag, and shown on the page.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        self._name, self._several, self._risk = self._redact(name), len(targets) > 1, risk
        before = noted(folder)
        with faults_of_store(self._redact, MEND):
            run = self._run.begin(name, settings, before, partial(note, folder), tags={RISK: risk})
            if run is not None:
                self._experiment = run.info.experiment_id
                if run.info.run_id == before:
                    self._continue()

    def candidates(self, target: str, candidates: Sequence[Candidate]) -> None:
        """Log all of a target's candidates so far.

        Each candidate is a nested run, and a point of the compile's curves, whose step is its number.
        """
        self._see(target, candidates)
        if self._run.id and not self._run.lost:
            with self._run.telling("of a candidate", ". It and others are told in the end"):
                self._tell(target)

    def end(
        self,
        candidates: Mapping[str, Sequence[Candidate]],
        compiled: Path | None,
        *,
        differences: Sequence[Difference] = (),
        result: Mapping[str, Any] | None = None,
        spent: Spending | None = None,
        stopped: str = "",
    ) -> str | None:
        """Log the result; return the registered version as `models:/NAME/VERSION`, or None if there is none.

        Args:
            candidates: All candidates by target.
            compiled: The folder of the compiled program or judge; None if a fault ended the compile.
            differences: Between base and compiled program on the test split.
            result: All of it, as JSON values.
            spent: On all of it, but the test; the last point of the curves of what was spent.
            stopped: Why the compile stopped; empty if it came to its end.
        """
        if not self._run.id:
            return None
        for target, of_target in candidates.items():
            self._see(target, of_target)
        with self._run.telling(f"of compile '{self._name}'", ". Nothing is lost: tell it with --resume"):
            for target in self._seen:
                self._tell(target)
            self._log_artifacts(result)
            if spent is not None:
                numbers = (candidate.number for candidates in self._seen.values() for candidate in candidates)
                self._run.log(spent.metrics, step=1 + max(numbers, default=0))
            self._run.tag({"stopped": stopped})
            version = self._tell_compiled(compiled, differences) if compiled else None
            self._run.end(stopped=compiled is None)
            return version
        return None

    def _continue(self) -> None:
        """Note which candidates an earlier session logged, and which it only began to log."""
        import mlflow

        query = f"tags.`{PARENT}` = '{self._run.id}'"
        for nested in mlflow.search_runs([self._experiment], query, output_format="list"):
            tags = nested.data.tags
            if _NUMBER not in tags:
                continue  # not a candidate's run
            key = (tags[_TARGET], int(tags[_NUMBER]))
            if nested.info.status == "FINISHED":
                self._told.add(key)
            else:
                self._begun[key] = nested.info.run_id

    def _see(self, target: str, candidates: Sequence[Candidate]) -> None:
        self._seen[target] = [Candidate.from_dict(cleaned(asdict(c), self._redact)) for c in candidates]

    def _tell(self, target: str) -> None:
        """Log a target's candidates that are not logged yet."""
        suffix = "/" + re.sub(r"[^\w. -]", "_", target) if self._several else ""
        best = None
        for candidate in self._seen[target]:
            best = candidate.score if candidate.best else best
            key = (target, candidate.number)
            if key in self._told:
                continue
            if key not in self._begun:
                name = f"{target} {candidate.number}" if self._several else f"candidate {candidate.number}"
                tags = {PARENT: self._run.id, _TARGET: target, _NUMBER: str(candidate.number)}
                nested = self._run.client.create_run(self._experiment, run_name=name, tags=tags)
                self._begun[key] = nested.info.run_id
            values = {**asdict(candidate), "changed": ", ".join(candidate.changed)}
            self._run.log(
                run=self._begun[key],
                metrics={name: values[name] for name in _NUMBERS},
                params=dict(flat({name: values[name] for name in _TEXTS if values[name]})),
            )
            curves = {"candidate/score": candidate.score, "candidate/best": best}
            curves |= {"spent/lm_calls": candidate.lm_calls, "spent/tokens": candidate.tokens}
            self._run.log(
                metrics={f"{name}{suffix}": value for name, value in curves.items() if value is not None},
                step=candidate.number,
            )
            self._run.client.set_terminated(self._begun[key], "FINISHED")  # last: it marks the candidate as logged
            self._told.add(key)

    def _log_artifacts(self, result: Mapping[str, Any] | None) -> None:
        files: dict[str, str] = {}
        if self._seen:
            rows = [
                {"target": target, **asdict(c), "changed": ", ".join(c.changed)}
                for target, candidates in self._seen.items()
                for c in candidates
            ]
            files[CANDIDATES] = table_of(rows)
            files[TRAJECTORY] = render_trajectories(self._seen, self._name, self._risk)
        if result is not None:
            files[RESULT] = json.dumps(cleaned(result, self._redact), ensure_ascii=False, indent=1) + "\n"
        with self._run.artifacts(CANDIDATES if self._seen else "") as folder:
            for name, text in files.items():
                (folder / name).write_text(text, "utf-8")

    def _tell_compiled(self, compiled: Path, differences: Sequence[Difference]) -> str | None:
        is_program = has_part(compiled, PROGRAM)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, ARTIFACT if is_program else JUDGE)
            parts = copy_redacted(compiled, copy, self._redact)
            self._run.client.log_artifacts(self._run.id, str(copy), copy.name)
            if not is_program:
                return None
            about = Compiled.read(copy).about
            self._run.log(metrics=dict(_test_metrics(about, differences)))
            self._run.tag({"verdict": about.verdict})
            model_id = log_model(self._run.client, self._run.id, copy, parts)
        name = self._register_as
        if name is None:
            return None
        return register_model(self._run.client, self._run.id, model_id, name, about)


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
