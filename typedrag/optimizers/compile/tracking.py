"""Telling MLflow of compiles: a run for each, a nested one for each candidate, and the compiled program as a model."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from typedrag.errors import InputError
from typedrag.experiments.compare.compare import ALL, Difference
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.loading import ARTIFACT
from typedrag.experiments.tracking.mlflow_store import faults_of_store
from typedrag.experiments.tracking.registration import check_model_name, log_model, register_model
from typedrag.experiments.tracking.tracked_run import MEND, PARENT, TrackedRun, flat, note, noted, table_of
from typedrag.optimizers.compile.teleprompters import Candidate
from typedrag.optimizers.compile.trajectory_chart import render_trajectories
from typedrag.programs.artifact.compiled import PROGRAM, CompiledAbout, Score, read_compiled
from typedrag.programs.artifact.json_folder import has_part, read_part, write_parts
from typedrag.redaction import Redactor, cleaned

CANDIDATES, TRAJECTORY, RESULT, JUDGE = "candidates.json", "trajectory.html", "result.json", "judge"
RISK = "risk"
"""A tag: what it risks to compile, or to sweep, against what was named."""
_TARGET, _NUMBER = "typedrag.target", "typedrag.candidate"
_NUMBERS = ("score", "base", "n", "failed", "unjudged", "lm_calls", "tokens")
_TEXTS = ("how", "state", "lm")


class CompileTracker:
    """Tells MLflow of one compile, or nothing if that is switched off.

    Args:
        config: Where and what.
        redact: Hides keys and addresses.
        on_notice: Told of what could not be tracked. Once the run is made, that is no reason to fail.
        register_as: The name of the registered model that the compiled program becomes a version of;
            None registers nothing.

    Raises:
        InputError: If nothing can be registered under that name, or tracking is switched off.
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
            if not config.enabled:
                raise InputError("programs are registered in MLflow, which is switched off", "Leave out --no-tracking")
        self._run = TrackedRun(config, redact, on_notice)
        self._redact = redact
        self._register_as = register_as
        self._name = ""
        self._experiment = ""
        self._several = False
        self._risk = ""
        self._seen: dict[str, dict[int, Candidate]] = {}
        self._told: set[tuple[str, int]] = set()
        self._begun: dict[tuple[str, int], str] = {}
        self._best_before: Mapping[str, float] = {}

    def begin(
        self, folder: Path, name: str, settings: Mapping[str, Any], targets: Sequence[str] = (), risk: str = ""
    ) -> None:
        """Begin MLflow's run, or continue the one that the compile in this folder was tracked by before.

        Args:
            folder: Of the compile; it gets a note of which run it is.
            name: Of the run.
            settings: What the compile depends on, as JSON values.
            targets: What is compiled, one after the other. The metrics of several have their names
                as suffixes.
            risk: What it risks to compile against this; a tag, and a line of the page.

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
                    self._continue(run)

    def candidate(self, target: str, candidate: Candidate) -> None:
        """Tell of a candidate: a nested run, and a point of the compile's curves, whose step is its number.

        Args:
            target: What is compiled.
            candidate: That was evaluated.
        """
        self._see(target, candidate)
        if self._run.id and not self._run.lost:
            with self._run.telling("of a candidate", ". It and others are told in the end"):
                self._tell(target, candidate.number)

    def end(
        self,
        candidates: Mapping[str, Sequence[Candidate]],
        compiled: Path | None,
        *,
        differences: Sequence[Difference] = (),
        result: Mapping[str, Any] | None = None,
        stopped: str = "",
    ) -> str | None:
        """Tell what came of the compile.

        Args:
            candidates: All, by target. Those of this session need not be among them.
            compiled: The folder of the compiled program or judge; None if a fault ended the compile.
            differences: Between base and compiled program on the test split.
            result: All of it, as JSON values.
            stopped: Why the compile stopped; empty if it came to its end.

        Returns:
            The registered version, as `models:/NAME/VERSION`; None if there is none.
        """
        if not self._run.id:
            return None
        for target, found in candidates.items():
            for candidate in found:
                self._see(target, candidate)
        with self._run.telling(f"of compile '{self._name}'", ". Nothing is lost: tell it with --resume"):
            for target, seen in self._seen.items():
                for number in sorted(seen):
                    self._tell(target, number)
            self._log_artifacts(result)
            self._run.tag({"stopped": stopped})
            version = self._tell_compiled(compiled, differences) if compiled else None
            self._run.end(stopped=compiled is None)
            return version
        return None

    def _continue(self, run: Any) -> None:
        """Which candidates an earlier session told of, and which it only began to."""
        import mlflow

        self._best_before = {
            name.removeprefix("candidate/best").removeprefix("/"): value
            for name, value in run.data.metrics.items()
            if name.startswith("candidate/best")
        }
        wanted = f"tags.`{PARENT}` = '{run.info.run_id}'"
        for nested in mlflow.search_runs([run.info.experiment_id], wanted, output_format="list"):
            tags = nested.data.tags
            if _NUMBER not in tags:
                continue  # someone else's
            key = (tags[_TARGET], int(tags[_NUMBER]))
            if nested.info.status == "FINISHED":
                self._told.add(key)
            else:
                self._begun[key] = nested.info.run_id

    def _see(self, target: str, candidate: Candidate) -> None:
        clean = Candidate.from_dict(cleaned(asdict(candidate), self._redact))
        self._seen.setdefault(target, {})[candidate.number] = clean

    def _tell(self, target: str, number: int) -> None:
        key, candidate = (target, number), self._seen[target][number]
        if key in self._told:
            return
        if key not in self._begun:
            name = f"{target} {number}" if self._several else f"candidate {number}"
            tags = {PARENT: self._run.id, _TARGET: target, _NUMBER: str(number)}
            nested = self._run.client.create_run(self._experiment, run_name=name, tags=tags)
            self._begun[key] = nested.info.run_id
        values = asdict(candidate)
        texts = {**{name: values[name] for name in _TEXTS}, "changed": ", ".join(candidate.changed)}
        self._run.log(
            run=self._begun[key],
            metrics={name: values[name] for name in _NUMBERS},
            params=dict(flat({name: text for name, text in texts.items() if text})),
        )
        suffix = self._suffix(target)
        curves = {"candidate/score": candidate.score, "candidate/best": self._best_at(target, number)}
        curves |= {"spent/lm_calls": candidate.lm_calls, "spent/tokens": candidate.tokens}
        self._run.log(
            metrics={f"{name}{suffix}": value for name, value in curves.items() if value is not None},
            step=number,
        )
        self._run.client.set_terminated(self._begun[key], "FINISHED")  # last: it says that all is told
        self._told.add(key)

    def _suffix(self, target: str) -> str:
        return "/" + re.sub(r"[^\w. -]", "_", target) if self._several else ""

    def _best_at(self, target: str, number: int) -> float | None:
        """The best so far when a candidate had been evaluated."""
        bests = {n: c.score for n, c in self._seen[target].items() if n <= number and c.best}
        return bests[max(bests)] if bests else self._best_before.get(self._suffix(target).removeprefix("/"))

    def _log_artifacts(self, result: Mapping[str, Any] | None) -> None:
        trajectories = {target: [seen[n] for n in sorted(seen)] for target, seen in self._seen.items()}
        files: dict[str, str] = {}
        if trajectories:
            rows = [
                {"target": target, **asdict(c), "changed": ", ".join(c.changed)}
                for target, found in trajectories.items()
                for c in found
            ]
            files[CANDIDATES] = table_of(rows)
            files[TRAJECTORY] = render_trajectories(trajectories, self._name, self._risk)
        if result is not None:
            files[RESULT] = json.dumps(cleaned(result, self._redact), ensure_ascii=False, indent=1) + "\n"
        with self._run.artifacts(CANDIDATES if trajectories else "") as folder:
            for name, text in files.items():
                (folder / name).write_text(text, "utf-8")

    def _tell_compiled(self, compiled: Path, differences: Sequence[Difference]) -> str | None:
        is_program = has_part(compiled, PROGRAM)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, ARTIFACT if is_program else JUDGE)
            content = _copy_folder(compiled, copy, self._redact)
            self._run.client.log_artifacts(self._run.id, str(copy), copy.name)
            if not is_program:
                return None
            about = read_compiled(copy).about
            self._run.log(metrics=dict(_test_metrics(about, differences)))
            self._run.tag({"verdict": about.verdict})
            model_id = log_model(self._run.client, self._run.id, copy, content)
        name = self._register_as
        if name is None:
            return None
        return f"models:/{name}/{register_model(self._run.client, self._run.id, model_id, name, about)}"


def _copy_folder(folder: Path, copy: Path, redact: Redactor) -> dict[str, Any]:
    """Copy the JSON files of a compiled program or judge, and nothing else; gives their values."""
    source = str(folder)
    content = {file.name: cleaned(read_part(folder, file.name, source), redact) for file in folder.glob("*.json")}
    write_parts(copy, content)
    return content


def _test_metrics(about: CompiledAbout, differences: Sequence[Difference]) -> Iterator[tuple[str, float]]:
    """As `test/compiled/linkage/mrr` overall and `test/compiled/linkage/mrr/reason` by type."""
    for side, scores in (("base", about.base), ("compiled", about.compiled)):
        for measure, score in scores.items():
            yield from _score_metrics(f"test/{side}/{measure}", score)
    if about.p is not None:
        yield "test/p", about.p
    for d in differences:
        suffix = "" if d.stratum == ALL else f"/{d.stratum.name}"
        for side, estimate in (("base", d.baseline), ("compiled", d.other), ("difference", d.difference)):
            if estimate is not None:
                score = Score(estimate.value, estimate.low, estimate.high, estimate.n)
                yield from _score_metrics(f"test/{side}/{d.measure}{suffix}", score)
        if d.p is not None:
            yield f"test/p/{d.measure}{suffix}", d.p


def _score_metrics(name: str, score: Score) -> Iterator[tuple[str, float]]:
    yield name, score.value
    for part in ("low", "high", "n"):
        yield f"{name}/{part}", float(getattr(score, part))
