"""Compiled programs in MLflow: as models of runs, as versions of registered models, and one of those as champion."""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

from typedrag.core.errors import InputError, first_line
from typedrag.core.records import Estimate
from typedrag.core.redaction import make_redactor
from typedrag.experiments.config import TrackingConfig
from typedrag.experiments.formats import format_p, format_value
from typedrag.experiments.held_out import SCORE, TRUTH
from typedrag.experiments.loading import ARTIFACT, read_program
from typedrag.experiments.tracking.tracker import Tracker, connect_to_existing, faults_of_store
from typedrag.programs.artifact import read_json
from typedrag.programs.compiled import PROGRAM, Compiled, CompiledAbout
from typedrag.programs.loading import without_external_models

CHAMPION = "champion"
MODEL, AGENT = "model", "agent"  # the names of a run's models: `runs:/ID/model`
_REGISTERED = {"typedrag": "compiled program"}  # the tag by which registered versions are found
_DIGEST, _MODEL_ID = "typedrag.program", "typedrag.model"  # tags of runs; versions have the second one, too
_HINT = "Name another --tracking-uri, or set MLFLOW_TRACKING_URI"
_QUESTIONS = "set of test questions"
_COMPILING_ONLY = ("prompt", "teacher")  # LMs that a program's scores do not depend on


@dataclass(frozen=True)
class RegisteredProgram:
    """A version, from 1, of a registered model that is a compiled program, and the id of MLflow's run that compiled it;
    if it cannot be loaded, `problem` says why."""

    name: str
    version: int
    aliases: tuple[str, ...]
    run: str
    program: str = ""
    about: CompiledAbout | None = None
    problem: str = ""

    @property
    def base(self) -> Estimate | None:
        """The objective on the test split before compiling; None if it was not measured."""
        return self.about.base.get(SCORE) if self.about else None

    @property
    def compiled(self) -> Estimate | None:
        return self.about.compiled.get(SCORE) if self.about else None


@dataclass(frozen=True)
class Promotion:
    """A promotion: the version that has the alias now, the one that had it before, if any, the reasons against it, if
    it was forced, and what to look at before it is used, if anything."""

    name: str
    alias: str
    version: int
    before: int | None
    objections: tuple[str, ...] = ()
    warning: str = ""


def check_registration(name: str | None, tracking: TrackingConfig) -> None:
    """Raise an `InputError` if no program can be registered by this name, or none at all; None registers nothing."""
    if name is None:
        return
    if not re.fullmatch(r"[\w+-][\w +.-]*", name):
        raise InputError(f"no registered model can be called '{name}'", "Use letters, digits, and - _ + . within")
    if not tracking.enabled:
        raise InputError("MLflow registers programs, and tracking is off", "Turn it on, or leave out --register")


def register_program(folder: Path, name: str, tracking: TrackingConfig) -> str:
    """Register a compiled program that is in a folder, without a compile; return it as `models:/NAME/VERSION`."""
    check_registration(name, tracking)
    program, redact = Compiled.read(folder), make_redactor([])
    program.without_index(without_external_models(program.options))  # what cannot be loaded is refused
    tracker, settings = Tracker(tracking, redact, str), {"program": program.program, "options": dict(program.options)}
    tracker.begin(name, settings, kind="registration", tags={"dataset": program.about.dataset}, hint=_HINT)
    with faults_of_store(redact, _HINT):
        if program.about.verdict:
            tracker.conclude(program.about.verdict)
        registered = log_model(tracker, folder, name)
        tracker.end()
    return registered


def log_model(tracker: Tracker, program: Path, register_as: str | None) -> str:
    """Log a compiled program as a model of a run that has begun, and perhaps as a version of a registered model.

    What is logged or registered already is not repeated.
    """
    client, tags = tracker.client, tracker.client.get_run(tracker.id).data.tags
    content = {file.name: read_json(program, file.name, str(program)) for file in program.glob("*.json")}
    content[PROGRAM]["about"].pop("created", None)  # a compile that is resumed after its end writes it again
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    model_id = str(tags[_MODEL_ID]) if tags.get(_DIGEST) == digest else _save_models(tracker, program)
    client.set_tag(tracker.id, _MODEL_ID, model_id)
    client.set_tag(tracker.id, _DIGEST, digest)
    return "" if register_as is None else _register(tracker, model_id, register_as, Compiled.read(program).about)


def _save_models(tracker: Tracker, program: Path) -> str:
    """Save the run's models, the one that takes batches and the agent, and return the first one's id."""
    from typedrag.experiments.tracking.served_agent import save_agent
    from typedrag.experiments.tracking.served_model import save_served_program

    model_id = _save_model(tracker, program, MODEL, save_served_program)
    _save_model(tracker, program, AGENT, save_agent)
    return model_id


def _save_model(tracker: Tracker, program: Path, name: str, save: Callable[[Path, Path, Any], None]) -> str:
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    client, experiment = tracker.client, tracker.client.get_run(tracker.id).info.experiment_id
    model = client.create_logged_model(experiment, name=name, source_run_id=tracker.id)
    model_id = str(model.model_id)
    with tempfile.TemporaryDirectory() as folder:
        # MLflow's own log_model would let an LM answer the example
        described = Model(model.artifact_location, tracker.id, model_uuid=model_id, model_id=model_id)
        copy = copytree(program, Path(folder, ARTIFACT))  # the model names the folder that it was saved from
        save(copy, Path(folder, name), described)
        client.log_model_artifacts(model_id, str(Path(folder, name)))
    client.finalize_logged_model(model_id, "READY")
    client.log_outputs(tracker.id, [LoggedModelOutput(model_id, step=0)])
    return model_id


def _register(tracker: Tracker, model_id: str, name: str, about: CompiledAbout) -> str:
    import mlflow

    try:
        tracker.client.create_registered_model(name)
    except mlflow.MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"):
            raise
    for held in mlflow.search_model_versions(filter_string=f"name = '{name}'"):
        if held.tags.get(_MODEL_ID) == model_id:  # searches do not return the model's own id
            return f"models:/{name}/{held.version}"
    tags, by = {**_REGISTERED, _MODEL_ID: model_id}, f"compiled by {about.optimizer} against {about.metric}"
    description = f"{by} on {about.dataset}" if about.optimizer else ""
    version = tracker.client.create_model_version(
        name, f"models:/{model_id}", tracker.id, tags, description=description, model_id=model_id
    )
    return f"models:/{name}/{version.version}"


def registered_programs(*, tracking_uri: str | None = None) -> list[RegisteredProgram]:
    with _registry(tracking_uri) as mlflow:
        aliases = {m.name: {a: int(v) for a, v in m.aliases.items()} for m in mlflow.search_registered_models()}
        [(tag, value)] = _REGISTERED.items()
        entries = mlflow.search_model_versions(filter_string=f"tags.`{tag}` = '{value}'")
    versions = sorted((str(v.name), int(v.version), str(v.run_id or "")) for v in entries)
    return [_read(name, version, run, aliases.get(name, {}), tracking_uri) for name, version, run in versions]


def promote(
    name: str, version: int, alias: str = CHAMPION, *, force: bool = False, tracking_uri: str | None = None
) -> Promotion:
    """Move an alias to a version of a registered compiled program.

    Programs are loaded by their alias: `models:/NAME@ALIAS`. `force` promotes in spite of `objections`, but not a
    version that cannot be loaded.
    """
    quote = '"' if "'" in name else "'"
    with _registry(tracking_uri) as mlflow:
        models = {model.name: model for model in mlflow.search_registered_models()}
        if name not in models:
            there = ", ".join(models) or "none; register one: typedrag registry add FOLDER --name NAME"
            raise InputError(f"no registered model is called '{name}'", f"There are: {there}")
        entries = mlflow.search_model_versions(filter_string=f"name = {quote}{name}{quote}")
    held = {name: int(of) for name, of in models[name].aliases.items()}
    versions = sorted(int(v.version) for v in entries)
    if version not in versions:
        there = ", ".join(map(str, versions)) or "none"
        raise InputError(f"registered model '{name}' has no version {version}", f"Versions: {there}")
    before = held.get(alias)
    about = _loadable(name, version, tracking_uri).about
    reasons: tuple[str, ...] = ()
    if before != version:
        champion = _read(name, before, "", held, tracking_uri) if before is not None else None
        reasons = tuple(objections(about, champion))
    if reasons and not force:
        named = f"models:/{name}/{version}"
        raise InputError(f"{named} is not promoted: {'; '.join(reasons)}", "Promote it all the same: --force")
    with _registry(tracking_uri) as mlflow:
        try:
            mlflow.MlflowClient().set_registered_model_alias(name, alias, str(version))
        except mlflow.MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            raise InputError(f"no alias can be called '{alias}': {first_line(error)}", "Name another") from None
    truth, base = about.compiled.get(TRUTH), about.base.get(TRUTH)
    lost = bool(truth and base and truth.value < base.value)
    return Promotion(name, alias, version, before, reasons, f"{_lost_truth(about)}, be it by chance" if lost else "")


def objections(about: CompiledAbout, champion: RegisteredProgram | None) -> Iterator[str]:
    """Yield the reasons against putting a compiled program in the place of the present champion, a line each.

    There are three: by the verdict on the test split it is worse or less truthful than its base, or the same; its mean
    of the objective on the test split is below the champion's, by however little; or the two means do not compare,
    since one is missing, or they are of another objective, other data or questions, or other LMs that answer or judge.
    """
    score, base = about.compiled.get(SCORE), about.base.get(SCORE)
    if about.verdict == "worse":
        scores = f"{_mean(score)}, before {_mean(base)}, p {format_p(about.p)}"
        yield f"on the test split it is worse than before it was compiled ({scores})"
    if about.verdict == "unchanged":
        yield "it is no better than its base, of which the compile has changed nothing"
    if about.verdict == "less truthful":
        yield f"on the test split {_lost_truth(about)}"
    if champion is None:
        return
    other = f"the present champion, version {champion.version},"
    if champion.about is None:
        yield f"{other} cannot be loaded ({champion.problem})"
        return
    if score is None or champion.compiled is None:
        yield f"it cannot be compared with {other} by the test split ({_mean(score)}, {_mean(champion.compiled)})"
        return
    mine, theirs = _score_settings(about, score), _score_settings(champion.about, champion.compiled)
    pairs = {name: (mine.get(name, "none"), theirs.get(name, "none")) for name in {**mine, **theirs}}
    if not (about.test_questions and champion.about.test_questions):  # a sweep's best has none
        pairs.pop(_QUESTIONS, None)
    differing = [f"another {name} ({ours}, there {other})" for name, (ours, other) in pairs.items() if ours != other]
    if differing:
        scores = f"{_mean(score)} and {_mean(champion.compiled)}"
        yield f"its score and that of {other} do not compare ({scores}): {', '.join(differing)}"
    elif score.value < champion.compiled.value:
        yield f"{other} is better on the test split ({_mean(champion.compiled)}, this one {_mean(score)})"


def _score_settings(about: CompiledAbout, score: Estimate) -> dict[str, object]:
    options = sorted(f"{name}.{o}={value}" for name, own in about.metric_options.items() for o, value in own.items())
    lms = {}
    for role, settings in about.lms.items():
        if role not in _COMPILING_ONLY:
            texts = [str(value) if name == "spec" else f"{name}={value}" for name, value in settings.items()]
            lms[f"{role} LM"] = " ".join(texts) or "none"
    return {
        "metric": about.metric,
        "setting of a metric": " ".join(options) or "the defaults",
        "dataset": about.dataset,
        "version of the dataset": about.dataset_fingerprint[:12],
        "subset": about.subset or "all",
        "index": about.index[:12] or "none",
        "draw of test questions": about.seed,
        "number of test questions": score.n,
        _QUESTIONS: about.test_questions[:12],
        **lms,
    }


def _lost_truth(about: CompiledAbout) -> str:
    scores = f"{_mean(about.compiled.get(TRUTH))}, before {_mean(about.base.get(TRUTH))}"
    return f"its answers are less truthful than before it was compiled ({scores})"


def _mean(score: Estimate | None) -> str:
    return f"{format_value(score.value)} on {score.n} questions" if score else "not measured"


def _loadable(name: str, version: int, tracking_uri: str | None) -> Compiled:
    compiled = read_program(f"models:/{name}/{version}", tracking_uri=tracking_uri)
    compiled.without_index(without_external_models(compiled.options))
    return compiled


def _read(name: str, version: int, run: str, aliases: Mapping[str, int], tracking_uri: str | None) -> RegisteredProgram:
    own = tuple(alias for alias, of in aliases.items() if of == version)
    try:
        read = _loadable(name, version, tracking_uri)
    except InputError as error:
        return RegisteredProgram(name, version, own, run, problem=error.problem)
    return RegisteredProgram(name, version, own, run, read.program, read.about)


@contextmanager
def _registry(tracking_uri: str | None) -> Iterator[Any]:
    mlflow = connect_to_existing(tracking_uri, "the registry")
    with faults_of_store(make_redactor([]), _HINT):
        yield mlflow
