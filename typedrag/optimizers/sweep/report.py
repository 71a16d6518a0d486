"""A sweep as a page of Markdown and as Optuna's figures: the front, the knobs' importances, and the best on other
questions."""

import base64
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from typedrag.experiments.formats import format_estimate, format_p, format_value, markdown_table, render_page
from typedrag.experiments.held_out import SCORE, format_truth, format_verdict
from typedrag.files.text_files import write_text
from typedrag.lms.lm import default_spec
from typedrag.metrics.estimate import mean_estimate
from typedrag.optimizers.sweep import study
from typedrag.optimizers.sweep.best import Measured, read_best
from typedrag.optimizers.sweep.study import Sweep

_MOST_TRIALS = 30
_TOO_FEW = (ValueError, RuntimeError, IndexError)
"""What Optuna raises with too few trials."""
_DOTS = 110
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
    headings, *rows = front_rows(sweep)
    sections = [_section("The front", headings, rows), _importances(sweep), _by_kind(sweep)]
    sections += [_all_trials(sweep), _other_measures(sweep), _best(sweep)]
    return "\n".join([*head, *(line for section in sections for line in section)]).rstrip() + "\n"


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
    infeasible = sum(t.state == TrialState.COMPLETE and not study.is_feasible(t) for t in trials)
    spent = study.sum_spending(*trials)
    outside = f" ({infeasible} of the complete ones outside the constraints)" if infeasible else ""
    paid = f"{spent.usage.lm_calls:,} LM calls and {spent.tokens:,} tokens were paid for"
    return f"trials: {', '.join(states) or 'none'}{outside}; {paid}"


def measured_row(m: Measured, beside_gain: str = "") -> list[str]:
    """The row of a measure: the base, the best, the gain, its p, the gain on swept questions, the gain lost."""
    gain = format_estimate(m.gain_held_out, signed=True) + beside_gain
    swept, lost = (format_estimate(estimate, signed=True) for estimate in (m.gain_in_sample, m.gap))
    return [m.measure, format_estimate(m.base_held_out), format_estimate(m.held_out), gain, format_p(m.p), swept, lost]


def _section(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], about: str = "") -> Iterator[str]:
    yield from (f"## {title}", "", *([about, ""] if about else []))
    yield from markdown_table(headings, rows)


def _importances(sweep: Sweep) -> Iterator[str]:
    if by_objective := importances(sweep):
        names = list(sweep.parts.space.distributions)
        rows = [[m, *(format_value(values.get(name)) for name in names)] for m, values in by_objective.items()]
        about = "Optuna's importances over complete trials; an objective's sum to 1."
        yield from _section("What mattered", ["objective", *names], rows, about)


def _by_kind(sweep: Sweep) -> Iterator[str]:
    measure, questions = sweep.parts.config.objectives[0].measure, list(sweep.questions.values())
    for place, by in enumerate(("question type", "subset")):
        kinds = [kind for kind in dict.fromkeys(q[place] for q in questions) if kind]
        if len(kinds) > 1:
            rows = [["questions", "", *(str(sum(q[place] == kind for q in questions)) for kind in kinds)]]
            for trial in _complete(sweep):
                values = list(zip(study.values_of_trial(trial).get(measure, []), questions, strict=False))
                known = [[v for v, q in values if q[place] == kind and v is not None] for kind in kinds]
                means = [format_value(fmean(of_kind) if of_kind else None) for of_kind in known]
                rows.append([str(trial.number), ", ".join(_knobs(sweep, trial)), *means])
            headings = ["trial", ", ".join(sweep.parts.space.distributions), *kinds]
            yield from _section(f"{measure} by {by}", headings, rows)


def _all_trials(sweep: Sweep) -> Iterator[str]:
    measures, rows = _measures(sweep), []
    for trial in sweep.trials(*study.ENDED):
        means = [format_value(study.mean_value(study.values_of_trial(trial), m)) for m in measures]
        first = [str(trial.number), trial.state.name.lower(), str(study.answered(trial))]
        rows.append([*first, *_knobs(sweep, trial), *means])
    headings = ["trial", "", "questions", *sweep.parts.space.distributions, *measures]
    yield from _section("All trials", headings, rows, "Pruned ones have study.answered the first questions alone.")


def _other_measures(sweep: Sweep) -> Iterator[str]:
    """A table of the other measures of the complete trials, which were paid for as well, best first."""
    trials = _complete(sweep)
    known = dict.fromkeys(m for trial in trials for m in study.values_of_trial(trial) if not m.startswith("cost/"))
    grouped = {m.partition("/")[0] for m in known if not m.endswith("/score")}
    others = [m for m in known if m not in (*_measures(sweep), SCORE)]
    others = [m for m in others if not (m.endswith("/score") and m.partition("/")[0] in grouped)]
    if others:
        rows = [[str(t.number), *_knobs(sweep, t), *_estimates(sweep, t, others)] for t in trials]
        yield from _section("Measured besides", ["trial", *sweep.parts.space.distributions, *others], rows)


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
        yield f"Gain over the questions that both answered: {gain}. One that was not study.answered counts as wrong."


def _measures(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys([*(o.measure for o in sweep.parts.config.objectives), "cost/tokens"]))


def _complete(sweep: Sweep) -> list[FrozenTrial]:
    sign = sweep.parts.config.objectives[0].sign
    return sorted(sweep.trials(TrialState.COMPLETE), key=lambda t: -sign * t.values[0])[:_MOST_TRIALS]


def _knobs(sweep: Sweep, trial: FrozenTrial) -> list[str]:
    values = (trial.params.get(name) for name in sweep.parts.space.distributions)
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]


def _estimates(sweep: Sweep, trial: FrozenTrial, measures: Sequence[str]) -> Iterator[str]:
    values, groups = study.values_of_trial(trial), [key for *_, key in sweep.questions.values()]
    for measure in measures:
        known = [(v, group) for v, group in zip(values.get(measure, ()), groups, strict=False) if v is not None]
        yield format_estimate(mean_estimate([v for v, _ in known], groups=[group for _, group in known]))


def write_figures(sweep: Sweep, folder: Path) -> list[Path]:
    """Write each of Optuna's figures as PNG, and a page of all; the page is the last file."""
    complete, files, shown = _complete_study(sweep), [], []
    for name, caption, draw in _drawings(sweep):
        if (png := _draw(draw, complete)) is not None:
            files.append(folder / f"{name}.png")
            files[-1].write_bytes(png)
            shown.append((caption, base64.b64encode(png).decode()))
    page = folder / "figures.html"
    template = Path(__file__).parent / "figures_page"
    write_text(page, render_page(template, {}, title=sweep.study.study_name, figures=shown))
    return [*files, page]


def importances(sweep: Sweep) -> dict[str, dict[str, float]]:
    """The share of the trials' variance that each knob explains, by objective; empty with too few trials."""
    complete, shares = _complete_study(sweep), {}
    for i, objective in enumerate(sweep.parts.config.objectives):
        try:
            with study.without_notices():
                losses = partial(_objective_value, i, -objective.sign)
                shares[objective.measure] = dict(optuna.importance.get_param_importances(complete, target=losses))
        except _TOO_FEW as error:
            logger.info("no importances for %s: %s", objective.measure, error)
    return shares


def _drawings(sweep: Sweep) -> Iterator[tuple[str, str, Callable[[optuna.Study], Any]]]:
    from optuna.visualization import matplotlib as plots

    objectives = sweep.parts.config.objectives
    for i, objective in enumerate(objectives):
        suffix = f"-{i + 1}" if len(objectives) > 1 else ""
        for name, caption, draw, sign in (
            ("history", "trial by trial", plots.plot_optimization_history, 1),
            ("importances", "how much each knob matters", plots.plot_param_importances, -objective.sign),
            ("slices", "knob by knob", plots.plot_slice, 1),
        ):
            of_this = partial(draw, target=partial(_objective_value, i, sign), target_name=objective.measure)
            yield f"{name}{suffix}", f"{objective.measure}: {caption}", of_this
    if len(objectives) in (2, 3):
        names = [objective.measure for objective in objectives]
        yield "front", "The front: trials that no other beats", partial(plots.plot_pareto_front, target_names=names)


def _complete_study(sweep: Sweep) -> optuna.Study:
    """A study of the complete trials alone: pruned trials study.answered fewer questions."""
    with study.without_notices():
        copy = optuna.create_study(directions=sweep.study.directions)
        copy.add_trials(sweep.trials(TrialState.COMPLETE))
    return copy


def _objective_value(position: int, sign: int, trial: FrozenTrial) -> float:
    """The value of an objective; as a loss for importances, since with a target Optuna's are for low values."""
    return sign * trial.values[position]


def _draw(draw: Callable[[optuna.Study], Any], complete: optuna.Study) -> bytes | None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    content = io.BytesIO()
    try:
        with study.without_notices():
            axes = draw(complete)
            first = axes.flat[0] if hasattr(axes, "flat") else axes
            for place in ("center", "left"):
                first.set_title("", loc=place)  # the caption says it
            first.figure.savefig(content, format="png", dpi=_DOTS, bbox_inches="tight")
    except _TOO_FEW as error:
        logger.info("a figure is left out: %s", error)
        return None
    finally:
        plt.close("all")
    return content.getvalue()
