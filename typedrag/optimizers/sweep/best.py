"""The best of a sweep: chosen, measured again on questions that no trial has seen, and saved as a program.

The best of many trials is in part the luckiest: on other questions it does worse than on those that
chose it (the winner's curse). To show how much of the gain remains, the best and the program as it was
are both measured on both sets of questions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from optuna.trial import TrialState
from pydantic import TypeAdapter

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.core.records import Estimate
from typedrag.experiments import held_out as verdicts
from typedrag.experiments.compare import COSTS, Difference, compare
from typedrag.experiments.config import CapsConfig, SpendingCaps
from typedrag.experiments.evaluate import run_evaluation
from typedrag.experiments.held_out import RIGHT, TRUTH
from typedrag.experiments.resources import bm25_settings, reranker_spec
from typedrag.experiments.results import Run
from typedrag.experiments.tracking.registry import check_registration, log_model
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.files.text_files import write_json
from typedrag.lms.lm import reply_settings
from typedrag.lms.specs import default_spec
from typedrag.metrics.estimate import bootstrap_estimate, mean_estimate
from typedrag.metrics.objective import measurable_ids
from typedrag.optimizers.sweep.config import ObjectiveConfig
from typedrag.optimizers.sweep.space import apply_lm_params, apply_rating, params_key
from typedrag.optimizers.sweep.study import MLFLOW, Sweep, is_feasible, mean_value, values_of_trial
from typedrag.programs.compiled import Change, CompiledAbout, Verdict, save_compiled
from typedrag.runs import Progress
from typedrag.text.words import question_key

FOLDER, RESULT = "best", "best.json"
HELD_OUT, BASE, PROGRAM = "held-out", "base", "program"


@dataclass(frozen=True)
class Measured:
    """One measure of the best and of the base, on the swept and on the held-out questions."""

    measure: str  # as `METRIC/MEASURE`
    maximize: bool  # true if more is better
    in_sample: Estimate | None  # the best's value on the swept questions, which chose it
    held_out: Estimate | None  # the best's value on held-out questions, which no trial has seen
    base_in_sample: Estimate | None  # the value of the base, the program as it was, on the swept questions
    base_held_out: Estimate | None  # the base's value on the held-out questions
    gain_in_sample: Estimate | None  # the mean paired gain of the best over the base on the swept questions
    gain_held_out: Estimate | None  # the mean paired gain on the held-out questions
    # the generalization gap: the gain that is lost on held-out questions; below 0 if the gain grew
    gap: Estimate | None
    # p-value of the gain on held-out questions, corrected for all trials ever measured on them; that of the first
    # objective, which chose the best, for no other measure. None if it is not tested
    p: float | None = None
    verdict: Verdict = ""
    # the gain over the held-out questions that both answered, if one of the two failed at any
    gain_answered: Estimate | None = None


@dataclass(frozen=True)
class Best:
    """The best of a sweep."""

    trial: int
    point: Mapping[str, Any]  # the values of its knobs
    chosen: str  # the way it was chosen, in words
    measured: tuple[Measured, ...]  # the measures: objectives, then truthfulness if it was measured, then costs
    folder: Path  # the folder of the saved program
    # the split and the number of questions that it was measured on, and of trials ever measured on them
    settings: Mapping[str, Any] = field(default_factory=dict)
    registered: str = ""  # the version of a registered model in MLflow, as `models:/NAME/VERSION`; empty if it is none
    verdict: Verdict = ""  # the verdict on the first objective; never `better` if answers are less truthful

    @property
    def truth(self) -> Estimate | None:
        return next((m.gain_held_out for m in self.measured if m.measure == TRUTH), None)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def read_best(out: Path) -> Best | None:
    """The best of the sweep in a folder; None if `typedrag sweep best` has not measured it."""
    file = out / FOLDER / RESULT
    return TypeAdapter(Best).validate_json(file.read_bytes()) if file.is_file() else None


def why_no_best(sweep: Sweep) -> tuple[str, str]:
    """The reason that a sweep without a front has no best, and what to change."""
    if not (complete := sweep.trials(TrialState.COMPLETE)):
        return "no trial is complete: there is no best", "Let the sweep go on: the same command continues it"
    nearest = min(complete, key=lambda t: sum(max(0.0, excess) for excess in t.constraints.values()))
    broken = ", ".join(f"{name} by {excess:.3g}" for name, excess in nearest.constraints.items() if excess > 0)
    return (
        f"no trial keeps to the constraints: there is no best. The nearest, trial {nearest.number}, misses {broken}",
        "Loosen the constraints or widen the knobs in the file, and run it into another --out",
    )


def choose(sweep: Sweep, *, within: float | None = None, cheapest: bool = False, number: int | None = None) -> Best:
    """Choose the best trial by the first objective, or another that is nearly as good and costs less."""
    objective, *_ = sweep.parts.config.objectives
    complete = sweep.trials(TrialState.COMPLETE)
    allowed = [t for t in complete if is_feasible(t)]
    if number is not None:
        matches = [t for t in complete if t.number == number]
        if not matches:
            raise InputError(f"trial {number} is not complete", "See: typedrag sweep report")
        [chosen], how = matches, f"trial {number}, as was wanted"
    elif not allowed:
        raise InputError(*why_no_best(sweep))
    elif within is None and not cheapest:
        chosen, how = sweep.front[0], f"the best at {objective.measure}"
    else:
        best = sweep.front[0].values[0]
        least = objective.sign * best - abs(best) * (within or 0.0) - 1e-12
        near = [t for t in allowed if objective.sign * t.values[0] >= least]
        tokens = {t.number: mean_value(values_of_trial(t), "cost/tokens") for t in near} if cheapest else {}
        unknown = float("inf")
        chosen = min(near, key=lambda t: (unknown if (n := tokens.get(t.number)) is None else n, t.number))
        how = f"the {'cheapest' if cheapest else 'first'} within {within or 0:.3g} of the best at {objective.measure}"
    return Best(chosen.number, dict(chosen.params), how, (), sweep.parts.out / FOLDER / PROGRAM)


def parse_share(text: str) -> float:
    """Parse a share that is written as `2%-of-best`, `2%` or `0.02`.

    Example:
        >>> parse_share("2%-of-best"), parse_share("0.02")
        (0.02, 0.02)
    """
    number = text.removesuffix("-of-best")
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InputError(f"'{text}' is no share of the best", "Write it like 2%-of-best")
    return share


def measure_best(
    sweep: Sweep,
    chosen: Best,
    *,
    register_as: str | None = None,
    caps: SpendingCaps | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> Best:
    """Measure the best and the program as it was on held-out questions, and save the best as a program."""
    parts, config = sweep.parts, sweep.parts.config
    check_registration(register_as, config.tracking)
    point, data = chosen.point, config.held_out
    questions = parts.base.dataset.split(data.split)
    named = parts.base.config.metrics
    metrics = verdicts.with_truthfulness(named, questions, parts.base.dataset, parts.base.scorer, on_notice)
    measurable = measurable_ids(parts.base.metrics.values(), [*parts.base.examples, *questions])
    folder = parts.out / HELD_OUT
    ever = {f"{params_key(point)}-{data.split}", *(measured.name for measured in folder.glob(f"*-{data.split}"))}
    programs = ever - {f"{BASE}-{data.split}"}
    if data.limit is None:
        count = len({question_key(e.question) for e in questions})
        hint = f"Hold out more, or measure it without a verdict: --set held_out.limit={count}"
        verdicts.check_enough(count, f"split '{data.split}'", hint, len(programs))

    def run(of_point: bool, held_out: bool) -> Run:
        name = f"{params_key(point) if of_point else BASE}-{data.split if held_out else 'swept'}"
        program = parts.program_config(point, name) if of_point else config.program.model_copy(update={"name": name})
        evaluation = parts.evaluation(
            program, split=data.split if held_out else None, limit=data.limit if held_out else None
        )
        # a knob may turn the type classifier, yet both programs are measured on the same questions
        typed = evaluation.dataset.model_copy(update={"type_classifier": parts.base.type_classifier})
        evaluation = evaluation.model_copy(
            update={
                # to the end, as compiled programs are tested
                "caps": CapsConfig(failures=1.0, **(caps or SpendingCaps()).model_dump()),
                "tracking": config.tracking.disabled(),
                "dataset": typed,
                "metrics": apply_rating(metrics, point) if of_point else metrics,
                **({"lm": apply_lm_params(parts.base.config.lm, point)} if of_point else {}),
            }
        )
        [evaluated] = run_evaluation(evaluation, folder, resume=True, on_progress=on_progress, on_notice=on_notice)
        measured = evaluated.run
        if evaluated.stopped:
            raise TypedRAGError(f"{name}: {evaluated.stopped}", "Allow more: the same command resumes")
        failed = sum(
            q.answer is None or any(r.measurable and r.score is None for r in q.metrics.values())
            for q in measured.questions
        )
        if failed:
            on_notice(f"{name}: {failed} of {measured.planned} questions have no answer, or lack a judgment of it")
        return verdicts.with_objective(measured, config.weights, measurable)

    runs = run(False, False), run(False, True), run(True, True)
    measured, verdict = _compare(sweep, chosen.trial, runs, len(programs))
    saved = parts.out / FOLDER / PROGRAM
    shared = runs[1].groups.keys() & runs[2].groups.keys()
    settings = {"held out": data.split, "n": len(shared), "programs": len(programs)}
    result = Best(chosen.trial, dict(point), chosen.chosen, measured, saved, settings, verdict=verdict)
    _save(sweep, result)
    write_json(saved.parent / RESULT, result.to_dict())
    return replace(result, registered=_log(sweep, result, register_as, on_notice))


def _compare(
    sweep: Sweep, number: int, runs: tuple[Run, Run, Run], programs: int
) -> tuple[tuple[Measured, ...], Verdict]:
    """All measures of a trial and the base, and the verdict; the runs are as those of `_measured`."""
    parts, objectives = sweep.parts, sweep.parts.config.objectives
    _, base, best = runs
    columns, ids = values_of_trial(sweep.trials()[number]), [q.id for q in parts.base.questions]
    swept = {m: {i: v for i, v in zip(ids, column, strict=False) if v is not None} for m, column in columns.items()}
    beside = [m for m in (TRUTH, RIGHT) if m in best.measures] + list(COSTS)
    looked_for = {o.measure for o in objectives}
    measures = [*objectives, *(ObjectiveConfig(measure=m) for m in beside if m not in looked_for)]
    shared = [o.measure for o in measures if base.values(o.measure) and best.values(o.measure)]
    first = objectives[0].measure
    tested: Sequence[Difference] = ()
    if shared:  # a knob may weigh a metric otherwise than the base does
        tested = compare(
            [base, best], measures=shared, by=(), force=True, decisive=first, programs=programs
        ).differences
    ups = {o.measure: o.sign > 0 for o in measures}
    differences = {d.measure: replace(d, more_is_better=ups[d.measure]) for d in tested}
    measured = tuple(_measured(o, swept.get(o.measure, {}), runs, differences.get(o.measure)) for o in measures)
    return measured, verdicts.combine_verdicts(differences.get(first), differences.get(TRUTH))


def _measured(
    objective: ObjectiveConfig, swept: Mapping[str, float], runs: tuple[Run, Run, Run], tested: Difference | None
) -> Measured:
    """A measure of the best and the base; the runs are the base's on swept questions, then both on held-out ones."""
    measure = objective.measure
    before, base, best = (run.values(measure) for run in runs)
    gains = [{i: x[i] - y[i] for i in x if i in y} for x, y in ((swept, before), (best, base))]
    groups = {i: key for run in runs for i, key in run.groups.items()}

    def mean(values: Mapping[str, float]) -> Estimate | None:
        return mean_estimate(list(values.values()), groups=[groups.get(i, i) for i in values])

    def difference(value: Any, side: Any) -> float:
        first, second = value[side == 1], value[side == 0]
        return float(first.mean() - second.mean()) if len(first) and len(second) else float("nan")

    gap = None
    if all(gains):
        values = [objective.sign * gain for side in gains for gain in side.values()]
        sides, of = [1.0] * len(gains[0]) + [0.0] * len(gains[1]), [groups.get(i, i) for side in gains for i in side]
        gap = bootstrap_estimate(difference, values, sides, groups=of)
    return Measured(
        measure,
        maximize=objective.sign > 0,
        in_sample=mean(swept),
        held_out=runs[2].mean(measure),
        base_in_sample=mean(before),
        base_held_out=runs[1].mean(measure),
        gain_in_sample=mean(gains[0]),
        gain_held_out=mean(gains[1]),
        gap=gap,
        p=tested.corrected_p if tested else None,
        verdict=tested.verdict if tested else "",
        gain_answered=tested.answered.difference if tested and tested.answered else None,
    )


def _save(sweep: Sweep, best: Best) -> None:
    parts, config = sweep.parts, sweep.parts.config
    program = parts.program_config(best.point)
    here = parts.components(best.point)
    source = here.source(program)
    first = best.measured[0]
    scores = {
        side: {m.measure: e for m in best.measured if (e := getattr(m, side)) is not None}
        for side in ("base_held_out", "held_out")
    }
    about = CompiledAbout(
        metric=", ".join(o.measure for o in parts.config.objectives),
        optimizer="sweep",
        optimizer_options=dict(best.point),
        dataset=parts.base.dataset.name,
        dataset_fingerprint=parts.base.dataset.fingerprint,
        subset=config.dataset.subset or "",
        index=here.index_fingerprint(program),
        seed=config.dataset.seed,
        base=scores["base_held_out"],
        compiled=scores["held_out"],
        differences={m.measure: Change(**asdict(m.gain_held_out), p=m.p) for m in best.measured if m.gain_held_out},
        verdict=best.verdict,
        p=first.p,
        lms={"task": {"spec": config.lm.spec or default_spec(), **reply_settings(here.lm)}},
    )
    save_compiled(
        here.program(program),
        best.folder,
        about,
        reranker=reranker_spec(program, source),
        retriever=here.retriever_spec(program),
        bm25=bm25_settings(program, source),
        redact=parts.base.redactor,
    )


def _log(sweep: Sweep, best: Best, register_as: str | None, on_notice: Callable[[str], None]) -> str:
    metrics: dict[str, float] = {}
    for m in best.measured:
        by_name = {
            "swept": m.in_sample, "held-out": m.held_out, "base-held-out": m.base_held_out,
            "gain-swept": m.gain_in_sample, "gain-held-out": m.gain_held_out, "fell": m.gap,
        }  # fmt: skip
        for name, estimate in by_name.items():
            if estimate is not None:
                ends = {"": estimate.value, "/low": estimate.low, "/high": estimate.high}
                known = {end: value for end, value in ends.items() if value is not None}
                metrics |= {f"best/{m.measure}/{name}{end}": value for end, value in known.items()}
    tracker = Tracker(sweep.parts.config.tracking, sweep.parts.base.redactor, on_notice)
    if tracker.config.enabled:
        with tracker.attempt("the best", "The same command logs it"):
            if tracker.resume(sweep.study.user_attrs.get(MLFLOW)):
                tracker.log(metrics)
                tracker.conclude(best.verdict)
                tracker.artifacts(best.folder.parent, best.folder.parent.name)
                if register_as:
                    return log_model(tracker, best.folder, register_as)
    return ""
