"""A sweep as a page of Markdown and as Optuna's figures: the front, the knobs' importances, and the best on other
questions."""

import base64
import io
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from typedrag.experiments import formats
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.held_out import SCORE, format_truth, format_verdict
from typedrag.files.text_files import write_text
from typedrag.lms.specs import default_spec
from typedrag.metrics.estimate import mean_estimate
from typedrag.optimizers.sweep import study
from typedrag.optimizers.sweep.best import Measured, read_best
from typedrag.optimizers.sweep.study import Sweep

_MOST_TRIALS = 30
_REPEATED = "skipped as repeated"  # trials that an earlier trial has made already
_TOO_FEW = (ValueError, RuntimeError, IndexError)
"""What Optuna raises with too few trials."""
logger = logging.getLogger(__name__)


def sweep_page(sweep: Sweep, command: str, note: str = "") -> str:
    config = sweep.parts.config
    data, lm = config.dataset, config.lm.spec or default_spec()
    head = [f"# Sweep: {config.name}", "", "Made by the command below, as it is; do not edit it.", "", "```", command]
    head += [
        "```",
        "",
        f"Program {config.program.program}, LM {lm}, {len(sweep.questions)} questions of {data.name} ({data.split}). "
        f"Sampler {config.sampler.name}, seed {config.sampler.seed}; {counts(sweep)}. "
        "In brackets are 95 % bootstrap intervals over questions.",
        *([note] if note else []),
        *(["", f"**Beware:** {sweep.parts.risk}."] if sweep.parts.risk else []),
        "",
    ]
    return "\n".join([*head, *_tables(sweep), *_best(sweep)]).rstrip() + "\n"


def front_rows(sweep: Sweep) -> Iterator[list[str]]:
    """The front as a table, headings first: number, knobs, objectives with intervals, and tokens an answer."""
    measures = _measures(sweep)
    yield ["trial", *sweep.parts.space.distributions, *measures]
    for trial in sweep.front:
        yield [str(trial.number), *_knobs(sweep, trial), *_estimates(sweep, trial, measures)]


def counts(sweep: Sweep) -> str:
    trials = sweep.trials()
    states = [
        f"{n} {state.name.lower()}"
        for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING)
        if (n := sum(t.state == state for t in trials))
    ]
    failed = [study.DUPLICATE in t.user_attrs for t in trials if t.state == TrialState.FAIL]
    states += [f"{n} {word}" for n, word in ((sum(failed), _REPEATED), (failed.count(False), "failed")) if n]
    infeasible = sum(t.state == TrialState.COMPLETE and not study.is_feasible(t) for t in trials)
    spent = study.sum_spending(*trials)
    outside = f" ({infeasible} of the complete ones outside the constraints)" if infeasible else ""
    paid = f"{spent.usage.lm_calls:,} LM calls and {spent.tokens:,} tokens were paid for"
    return f"trials: {', '.join(states) or 'none'}{outside}; {paid}"


def measured_row(m: Measured, beside_gain: str = "") -> list[str]:
    """The row of a measure: the base, the best, the gain, its p, the gain on swept questions, the gain lost."""
    gain = format_estimate(m.gain_held_out, signed=True) + beside_gain
    swept, lost = (format_estimate(estimate, signed=True) for estimate in (m.gain_in_sample, m.gap))
    return [
        m.measure,
        format_estimate(m.base_held_out),
        format_estimate(m.held_out),
        gain,
        formats.format_p(m.p),
        swept,
        lost,
    ]


def _section(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], about: str = "") -> Iterator[str]:
    yield from (f"## {title}", "", *([about, ""] if about else []))
    yield from formats.markdown_table(headings, rows)


def _tables(sweep: Sweep) -> Iterator[str]:
    """The front, what mattered, the first objective by kinds of questions, all trials, and other measures."""
    headings, *rows = front_rows(sweep)
    yield from _section("The front", headings, rows)
    names, objectives = list(sweep.parts.space.distributions), sweep.parts.config.objectives
    if by_objective := importances(sweep):
        rows = [[m, *(formats.format_value(values.get(n)) for n in names)] for m, values in by_objective.items()]
        about = "Optuna's importances over complete trials; an objective's sum to 1."
        yield from _section("What mattered", ["objective", *names], rows, about)
    for objective in objectives:
        if _is_constant(sweep, objective.measure):
            yield from (
                f"All complete trials have the same {objective.measure}: it tells nothing of what mattered.",
                "",
            )

    complete = sorted(sweep.trials(TrialState.COMPLETE), key=lambda t: -objectives[0].sign * t.values[0])[:_MOST_TRIALS]
    measure, questions = objectives[0].measure, list(sweep.questions.values())
    for place, by in enumerate(("question type", "subset")):
        kinds = [kind for kind in dict.fromkeys(q[place] for q in questions) if kind]
        if len(kinds) > 1:
            rows = [["questions", "", *(str(sum(q[place] == kind for q in questions)) for kind in kinds)]]
            for trial in complete:
                values = list(zip(study.values_of_trial(trial).get(measure, []), questions, strict=False))
                known = [[v for v, q in values if q[place] == kind and v is not None] for kind in kinds]
                means = [formats.format_value(fmean(of_kind) if of_kind else None) for of_kind in known]
                rows.append([str(trial.number), ", ".join(_knobs(sweep, trial)), *means])
            yield from _section(f"{measure} by {by}", ["trial", ", ".join(names), *kinds], rows)

    measures, rows = _measures(sweep), []
    for trial in sweep.trials(*study.ENDED, TrialState.FAIL):
        means = [formats.format_value(study.mean_value(study.values_of_trial(trial), m)) for m in measures]
        state = _REPEATED if study.DUPLICATE in trial.user_attrs else trial.state.name.lower().replace("fail", "failed")
        first = [str(trial.number), state, str(study.answered(trial))]
        rows.append([*first, *_knobs(sweep, trial), *means])
    headings = ["trial", "", "questions", *names, *measures]
    about = "Pruned ones have answered the first questions alone; another trial stands for each that failed."
    yield from _section("All trials", headings, rows, about)

    measured = dict.fromkeys(m for t in complete for m in study.values_of_trial(t) if not m.startswith("cost/"))
    grouped = {m.partition("/")[0] for m in measured if not m.endswith("/score")}
    others = [m for m in measured if m not in (*measures, SCORE)]
    others = [m for m in others if not (m.endswith("/score") and m.partition("/")[0] in grouped)]
    if others:
        rows = [[str(t.number), *_knobs(sweep, t), *_estimates(sweep, t, others)] for t in complete]
        yield from _section("Measured besides", ["trial", *names, *others], rows)


def _best(sweep: Sweep) -> Iterator[str]:
    if (best := read_best(sweep.parts.out)) is None:
        return
    knobs = ", ".join(f"{name} {value}" for name, value in best.point.items())
    about = (
        f"Trial {best.trial} ({best.chosen}): {knobs}. Measured again on {best.settings.get('n')} questions of the "
        f"split {best.settings.get('held out')}, which no trial has seen, beside the program as it was. A gain is "
        "that over the program as it was, question by question; how much of it was lost is the price of having been "
        "chosen."
    )
    headings = ("", "as it was", "best", "gain", "p", "gain where it was chosen", "gain lost")
    rows = [measured_row(m, f" ({m.verdict})" if m.verdict else "") for m in best.measured]
    yield from _section("The best, measured again", headings, rows, about)
    verdict = format_verdict(best.verdict, best.truth)
    yield f"Verdict, corrected for {best.settings.get('programs')} trials measured on these questions: {verdict}."
    if best.truth:
        yield f"{format_truth(best.truth)}."
    if best.measured[0].gain_answered:
        gain = format_estimate(best.measured[0].gain_answered, signed=True)
        yield f"Gain over the questions that both answered: {gain}. One that was not answered counts as wrong."


def _measures(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys([*(o.measure for o in sweep.parts.config.objectives), "cost/tokens"]))


def _knobs(sweep: Sweep, trial: FrozenTrial) -> list[str]:
    values = (trial.params.get(name) for name in sweep.parts.space.distributions)
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]


def _estimates(sweep: Sweep, trial: FrozenTrial, measures: Sequence[str]) -> Iterator[str]:
    values, groups = study.values_of_trial(trial), [key for *_, key in sweep.questions.values()]
    for measure in measures:
        known = [(v, group) for v, group in zip(values.get(measure, ()), groups, strict=False) if v is not None]
        yield format_estimate(mean_estimate([v for v, _ in known], groups=[group for _, group in known]))


def _is_constant(sweep: Sweep, measure: str) -> bool:
    place = [o.measure for o in sweep.parts.config.objectives].index(measure)
    values = [t.values[place] for t in sweep.trials(TrialState.COMPLETE)]
    return len(values) > 1 and len(set(values)) == 1


def importances(sweep: Sweep) -> dict[str, dict[str, float]]:
    """The share of the trials' variance that each knob explains, by objective; without objectives that are
    the same for all trials, and empty with too few trials."""
    complete, shares = _complete_study(sweep), {}
    for i, objective in enumerate(sweep.parts.config.objectives):
        if _is_constant(sweep, objective.measure):
            continue
        try:
            with study.without_notices():
                losses = partial(_objective_value, i, -objective.sign)
                shares[objective.measure] = dict(optuna.importance.get_param_importances(complete, target=losses))
        except _TOO_FEW as error:
            logger.info("no importances for %s: %s", objective.measure, error)
    return shares


def write_figures(sweep: Sweep, folder: Path) -> list[Path]:
    """Write each of Optuna's figures as PNG, and a page of the front and all figures; the page is the last file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as plots

    objectives = sweep.parts.config.objectives
    drawings: list[tuple[str, str, Any]] = []
    if len(objectives) in (2, 3):
        front = partial(plots.plot_pareto_front, target_names=[objective.measure for objective in objectives])
        drawings.append(("front", "Each trial by its objectives", front))
    for i, objective in enumerate(objectives):
        suffix = f"-{i + 1}" if len(objectives) > 1 else ""
        for name, caption, drawn, sign in (
            ("history", "trial by trial", plots.plot_optimization_history, 1),
            ("importances", "how much each knob matters", plots.plot_param_importances, -objective.sign),
            ("slices", "knob by knob", plots.plot_slice, 1),
        ):
            if name == "importances" and _is_constant(sweep, objective.measure):
                continue
            of_this = partial(drawn, target=partial(_objective_value, i, sign), target_name=objective.measure)
            drawings.append((f"{name}{suffix}", f"{objective.measure}: {caption}", of_this))

    complete, files, shown = _complete_study(sweep), [], []
    for name, caption, draw in drawings:
        content = io.BytesIO()
        try:
            with study.without_notices():
                axes = draw(complete)
                first = axes.flat[0] if hasattr(axes, "flat") else axes
                for place in ("center", "left"):
                    first.set_title("", loc=place)  # the caption says it
                first.figure.savefig(content, format="png", dpi=110, bbox_inches="tight")
        except _TOO_FEW as error:
            logger.info("a figure is left out: %s", error)
            continue
        finally:
            plt.close("all")
        files.append(folder / f"{name}.png")
        files[-1].write_bytes(content.getvalue())
        shown.append((caption, base64.b64encode(content.getvalue()).decode()))
    page = folder / "figures.html"
    template = Path(__file__).parent / "figures_page"
    title = f"Sweep: {sweep.parts.config.name}"
    write_text(page, formats.render_page(template, {}, title=title, front=list(front_rows(sweep)), figures=shown))
    return [*files, page]


def _complete_study(sweep: Sweep) -> optuna.Study:
    """A study of the complete trials alone: pruned trials answered fewer questions."""
    with study.without_notices():
        copy = optuna.create_study(directions=sweep.study.directions)
        copy.add_trials(sweep.trials(TrialState.COMPLETE))
    return copy


def _objective_value(position: int, sign: int, trial: FrozenTrial) -> float:
    """The value of an objective; as a loss for importances, since with a target Optuna's are for low values."""
    return sign * trial.values[position]
