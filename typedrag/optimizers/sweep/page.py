"""A sweep as a page of Markdown: the front, the knobs' importances, and the best on other questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from optuna.trial import FrozenTrial, TrialState

from typedrag.experiments.compare.truth import say_truth, say_verdict
from typedrag.experiments.compare.weighted import SCORE
from typedrag.experiments.formats import format_estimate, format_p, format_value, markdown_table
from typedrag.lms.lm import default_spec
from typedrag.metrics.arithmetic.estimate import mean_estimate
from typedrag.optimizers.sweep.best import Measured, read_best
from typedrag.optimizers.sweep.figures import importances
from typedrag.optimizers.sweep.pruning import mean_of
from typedrag.optimizers.sweep.study import ENDED, Sweep, answered, is_feasible, spent_on, values_of_trial

_MOST_TRIALS = 30


def sweep_page(sweep: Sweep, command: str, note: str = "") -> str:
    """The page of a sweep.

    Args:
        sweep: The sweep as it stands; the page shows its best once `typedrag sweep best` has measured it.
        command: The command line that makes the page.
        note: Anything else that a reader must know of how the trials were made.
    """
    return "\n".join(_lines(sweep, command, note)).rstrip() + "\n"


def front_rows(sweep: Sweep) -> Iterator[list[str]]:
    """The front as a table, headings first: number, knobs, objectives with intervals, and tokens an answer."""
    measures, groups = _measures(sweep), [key for *_, key in sweep.questions.values()]
    yield ["trial", *sweep.parts.space.distributions, *measures]
    for trial in sweep.front:
        yield [str(trial.number), *_knobs(sweep, trial), *_estimates(trial, measures, groups)]


def counts(sweep: Sweep) -> str:
    """The number of trials and their cost, in words."""
    trials = sweep.trials()
    states = [
        f"{n} {state.name.lower()}"
        for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING)
        if (n := sum(t.state == state for t in trials))
    ]
    infeasible = sum(t.state == TrialState.COMPLETE and not is_feasible(t) for t in trials)
    spent = spent_on(*trials)
    outside = f" ({infeasible} of the complete ones outside the constraints)" if infeasible else ""
    paid = f"{spent.usage.lm_calls:,} LM calls and {spent.tokens:,} tokens were paid for"
    return f"trials: {', '.join(states) or 'none'}{outside}; {paid}"


def _lines(sweep: Sweep, command: str, note: str) -> Iterator[str]:
    config = sweep.parts.config
    data, lm = config.dataset, config.lm.spec or default_spec()
    yield from (f"# Sweep: {config.name}", "")
    yield from ("Made by the command below, as it is; do not edit it.", "", "```", command, "```", "")
    yield (
        f"Program {config.program.program}, LM {lm}, {len(sweep.questions)} questions of {data.name} ({data.split}). "
        f"Sampler {config.sampler.name}, seed {config.sampler.seed}; {counts(sweep)}. "
        "In brackets are 95 % bootstrap intervals over questions."
    )
    if note:
        yield note
    if sweep.parts.risk:
        yield from ("", f"**Beware:** {sweep.parts.risk}.")
    yield ""
    yield from ("## The front", "")
    header, *rows = front_rows(sweep)
    yield from markdown_table(header, rows)
    yield from _importances(sweep)
    yield from _by_type(sweep)
    yield from _trials(sweep)
    yield from _other_measures(sweep)
    yield from _best(sweep)


def _importances(sweep: Sweep) -> Iterator[str]:
    by_objective = importances(sweep)
    if not by_objective:
        return
    yield from ("## What mattered", "", "Optuna's importances over complete trials; an objective's sum to 1.", "")
    names = list(sweep.parts.space.distributions)
    rows = [[m, *(format_value(values.get(name)) for name in names)] for m, values in by_objective.items()]
    yield from markdown_table(["objective", *names], rows)


def _by_type(sweep: Sweep) -> Iterator[str]:
    measure, questions = sweep.parts.config.objectives[0].measure, list(sweep.questions.values())
    for place, by in enumerate(("question type", "subset")):
        kinds = [kind for kind in dict.fromkeys(q[place] for q in questions) if kind]
        if len(kinds) > 1:
            yield from (f"## {measure} by {by}", "")
            numbers = [str(sum(q[place] == kind for q in questions)) for kind in kinds]
            rows = [["questions", "", *numbers]]
            rows += [
                [str(t.number), ", ".join(_knobs(sweep, t)), *_of_kinds(t, measure, questions, place, kinds)]
                for t in _complete(sweep)[:_MOST_TRIALS]
            ]
            yield from markdown_table(["trial", ", ".join(sweep.parts.space.distributions), *kinds], rows)


def _of_kinds(
    trial: FrozenTrial, measure: str, questions: Sequence[Sequence[str]], place: int, kinds: Sequence[str]
) -> Iterator[str]:
    column = values_of_trial(trial).get(measure, [])
    for kind in kinds:
        values = [v for v, q in zip(column, questions, strict=False) if q[place] == kind and v is not None]
        yield format_value(fmean(values)) if values else format_value(None)


def _trials(sweep: Sweep) -> Iterator[str]:
    measures = _measures(sweep)
    ended = sweep.trials(*ENDED)
    yield from ("## All trials", "", "Pruned ones have answered the first questions alone.", "")
    rows = (
        [
            str(trial.number),
            trial.state.name.lower(),
            str(answered(trial)),
            *_knobs(sweep, trial),
            *(format_value(mean_of(values_of_trial(trial), m)) for m in measures),
        ]
        for trial in ended
    )
    yield from markdown_table(["trial", "", "questions", *sweep.parts.space.distributions, *measures], rows)


def _other_measures(sweep: Sweep) -> Iterator[str]:
    """A table of the other measures of the complete trials, which were paid for as well, best first."""
    trials = _complete(sweep)[:_MOST_TRIALS]
    known = dict.fromkeys(m for trial in trials for m in values_of_trial(trial) if not m.startswith("cost/"))
    grouped = {m.partition("/")[0] for m in known if not m.endswith("/score")}
    others = [m for m in known if m not in (*_measures(sweep), SCORE)]
    others = [m for m in others if not (m.endswith("/score") and m.partition("/")[0] in grouped)]
    if others:
        yield from ("## Measured besides", "")
        groups = [key for *_, key in sweep.questions.values()]
        rows = ([str(t.number), *_knobs(sweep, t), *_estimates(t, others, groups)] for t in trials)
        yield from markdown_table(["trial", *sweep.parts.space.distributions, *others], rows)


def _best(sweep: Sweep) -> Iterator[str]:
    best = read_best(sweep.parts.out)
    if best is None:
        return
    yield from ("## The best, measured again", "")
    knobs = ", ".join(f"{name} {value}" for name, value in best.point.items())
    yield (
        f"Trial {best.trial} ({best.chosen}): {knobs}. Measured again on {best.settings.get('n')} questions of the "
        f"split {best.settings.get('held out')}, which no trial has seen, beside the program as it was. A gain is "
        "that over the program as it was, question by question; how much of it was lost is the price of having been "
        "chosen."
    )
    yield ""
    yield from markdown_table(
        ("", "as it was", "best", "gain", "p", "gain where it was chosen", "gain lost"),
        (measured_row(m, f" ({m.verdict})" if m.verdict else "") for m in best.measured),
    )
    verdict = say_verdict(best.verdict, best.truth)
    yield f"Verdict, corrected for {best.settings.get('programs')} trials measured on these questions: {verdict}."
    if best.truth:
        yield f"{say_truth(best.truth)}."
    if best.measured[0].gain_answered:
        gain = format_estimate(best.measured[0].gain_answered, signed=True)
        yield f"Gain over the questions that both answered: {gain}. One that was not answered counts as wrong."


def measured_row(m: Measured, beside_gain: str = "") -> list[str]:
    """The row of a measure: the base, the best, the gain, its p, the gain on swept questions, the gain lost."""
    return [
        m.measure,
        format_estimate(m.base_held_out),
        format_estimate(m.held_out),
        format_estimate(m.gain_held_out, signed=True) + beside_gain,
        format_p(m.p),
        format_estimate(m.gain_swept, signed=True),
        format_estimate(m.fell, signed=True),
    ]


def _measures(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys([*(o.measure for o in sweep.parts.config.objectives), "cost/tokens"]))


def _complete(sweep: Sweep) -> list[FrozenTrial]:
    first = sweep.parts.config.objectives[0]
    trials = [t for t in sweep.trials(TrialState.COMPLETE) if t.values]
    return sorted(trials, key=lambda t: -first.sign * t.values[0])


def _knobs(sweep: Sweep, trial: FrozenTrial) -> list[str]:
    values = (trial.params.get(name) for name in sweep.parts.space.distributions)
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]


def _estimates(trial: FrozenTrial, measures: Sequence[str], groups: Sequence[str]) -> Iterator[str]:
    values = values_of_trial(trial)
    for measure in measures:
        known = [(v, group) for v, group in zip(values.get(measure, ()), groups, strict=False) if v is not None]
        yield format_estimate(mean_estimate([v for v, _ in known], groups=[group for _, group in known]))
