"""`typedrag evaluate`: answer the questions of a dataset and measure the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from typedrag.cli import options
from typedrag.cli.terminal import RunsProgress, draw_table, in_words, print_json, say
from typedrag.core.errors import InputError
from typedrag.experiments.config import EvaluationConfig, SpendingCaps
from typedrag.experiments.formats import format_value
from typedrag.experiments.results import FEWEST, GroupSummary, RunSummary
from typedrag.runs import is_run

if TYPE_CHECKING:
    from typedrag.experiments.evaluate import Evaluated

FIELDS = options.field_options(
    EvaluationConfig,
    ("programs.program", "typed_rag, rag, hanrag, … or a compiled one (a folder, models:/NAME@ALIAS or runs:/ID/PATH): "
     "one run, in --out itself."),
    "programs.as_published",
    ("programs.options -o --option",
     "Set any option of --program; of a run of several in --config by RUN.NAME=VALUE; repeatable."),
    "programs.reranker", "programs.retriever", "index",
    ("lm.spec --lm", options.LM_HELP),
    "lm.api_base", "lm.temperature", "lm.max_tokens", "dataset.name --dataset", "dataset.path", "dataset.subset",
    "dataset.fields --field", "dataset.split", "dataset.limit", "dataset.seed", "scorer.spec --scorer",
    "scorer.api_base --scorer-api-base", "threads", "calls_in_flight", "executor", "workers",
    "caps.failures --max-failures", "replies", "tracking.enabled --tracking", "tracking.uri --tracking-uri",
    "tracking.experiment --experiment",
    "tracking.tracing --tracing/--no-tracing",
)  # fmt: skip


@options.command(
    FIELDS,
    options.field_options(SpendingCaps, *options.CAPS, under="caps"),
    name="evaluate",
    timeout=True,
    old={"--judgments": "--replies"},
)
def command(
    ctx: click.Context,
    *,
    config: options.ConfigFile = None,
    settings: options.Settings = (),
    out: Annotated[Path, "Folder of the run, or of all runs."],
    resume: Annotated[bool, "Continue the runs in --out."] = False,
    retry_failed: Annotated[bool, "With --resume: retry failed answers and judgments."] = False,
    only: Annotated[str | None, options.Joined(), "Make only this run of --config."] = None,
    answers: Annotated[
        Path | None,
        "Measure answers made elsewhere: JSONL with question or id, answer, perhaps passages; or a run's folder.",
    ] = None,
    system: Annotated[
        str | None, "Of --answers: the system they are of, which names its run and folder below --out."
    ] = None,
    metrics: Annotated[str | None, options.Joined(), "--metric", "Metric, such as linkage."] = None,
    metric_options: options.MetricOptions,
    by: Annotated[
        tuple[Literal["type", "subset"], ...], f"Also show types or subsets, those with {FEWEST} questions or more."
    ] = (),
    all_measures: Annotated[bool, "Show all measures of each metric, and all counts."] = False,
    as_json: Annotated[bool, "Print the summaries as JSON, one a line.", "--json"] = False,
    values: dict[str, Any],
) -> None:
    """Answer the questions of a dataset and measure the answers.

    With --answers, those that another system gave are measured. Answers and judgments are written as they come, and
    --resume continues an interrupted run. The summary goes to stdout, everything else to stderr. The exit status is 1
    if a cap or too many failures stopped a run.
    """
    if retry_failed and not resume:
        raise InputError("--retry-failed is for runs that are continued", "Add --resume")
    programs = _read_programs(values.pop("programs"), answers, system)
    if config is None and not isinstance(programs, list) and not settings:
        raise InputError("nothing is named to be evaluated", "Name --program, --answers or --config")
    named = [{"name": name} for name in (metrics or "").split(",") if name]
    values |= {"programs": programs, "metrics": options.named_metrics(metric_options, named)}

    from typedrag.experiments.config_file import read_config
    from typedrag.experiments.evaluate import run_evaluation

    job = read_config(config, values, settings)
    if only is not None:
        names = only.split(",")
        chosen = [p for p in job.programs if p.name in names]
        if len(chosen) < len(names):
            raise InputError(f"--only {only}: not all are runs", f"Runs: {', '.join(p.name for p in job.programs)}")
        job = job.model_copy(update={"programs": tuple(chosen)})
    ended: list[Evaluated] = []
    with RunsProgress(lambda: any(is_run(out / program.name) for program in job.programs)) as display:
        for evaluated in run_evaluation(
            job, out, resume=resume, retry_failed=retry_failed, on_progress=display.show, on_notice=say
        ):
            display.end()
            ended.append(evaluated)
            run, spent = evaluated.run, in_words(evaluated.run.spent)
            if evaluated.stopped:
                done = f"stopped after {len(run.questions)} of {run.planned} questions: {evaluated.stopped}"
                say(f"{run.name}: {done}. Continue with --resume ({spent}): {run.path}")
            else:
                say(f"{run.name}: {run.planned} questions ({spent}): {run.path}")
    if as_json:
        print_json(*(e.summary.to_dict() for e in ended))
    else:
        _draw([e.summary for e in ended], by, all_measures)
    if len(ended) < len(job.programs) or any(e.stopped for e in ended):
        ctx.exit(1)


def _read_programs(flags: dict[str, Any], answers: Path | None, system: str | None) -> Any:
    """The `programs` of the config by flags: one, or options of the runs of a --config by their names."""
    program = {name: value for name, value in flags.items() if value}
    if answers:
        if program:
            raise InputError("--answers are measured as they are, not those of a program", "Leave out either")
        return [{"program": f"answers:{answers}", **({"name": system} if system else {})}]
    if system:
        raise InputError("--system is of --answers", "Name them: --answers FILE")
    if program.keys() == {"options"} and all(isinstance(options, dict) for options in program["options"].values()):
        return {run: {"options": options} for run, options in program["options"].items()}
    if program and "program" not in program:
        raise InputError(
            "--as-published, --option, --reranker and --retriever are of a --program",
            "Name one: --program NAME; or a run of --config: -o RUN.NAME=VALUE, --set programs.RUN.reranker=…",
        )
    return [program] if program else None


def _draw(summaries: list[RunSummary], by: Sequence[str], all_measures: bool) -> None:
    """Print the measures of all runs side by side, and perhaps of each run by question type or subset."""
    if summaries:
        _draw_groups("all questions", {s.name: s.overall for s in summaries}, all_measures)
    for summary in summaries:
        for part, groups in (("type", summary.types), ("subset", summary.subsets)):
            enough = {name: group for name, group in groups.items() if group.questions >= FEWEST}
            if part in by and enough:
                _draw_groups(f"{summary.name}, by {part}", enough, all_measures)
            elif part in by:
                say(f"{summary.name}: no {part} has {FEWEST} questions or more")


def _draw_groups(title: str, groups: dict[str, GroupSummary], all_measures: bool) -> None:
    columns: list[dict[str, str]] = []
    totals = Counter[str]()
    for group in groups.values():
        counts = {
            "answers failed": group.failed,
            "fallbacks": group.fallbacks,
            "not answered": group.not_answered,
            "from the LM's knowledge": group.knowledge,
        }
        cells = {"questions": str(group.questions)} | {name: group.share(n) for name, n in counts.items()}
        cells["grounded"] = group.share(group.grounded)
        cells |= {f"{name} an answer": f"{mean:,.1f}" for name, mean in group.cost.items()}
        for name, metric in group.metrics.items():
            tally = {f"{name}: failed": metric.failed, f"{name}: not measurable": metric.not_measurable}
            counts |= tally
            if all_measures:
                cells[f"{name}: scored"] = str(metric.n)
                cells |= {f"{name}/{measure}": f"{value:.3f}" for measure, value in metric.measures.items()}
                cells |= {f"{name}/{measure}, answered": f"{value:.3f}" for measure, value in metric.answered.items()}
            else:
                cells[name] = format_value(metric.headline(name), 3)
            cells |= {what: str(n) for what, n in tally.items()}
        columns.append(cells)
        totals.update(counts)
    zeros = () if all_measures else {name for name, n in totals.items() if not n}
    names = dict.fromkeys(name for cells in columns for name in cells if name not in zeros)
    rows = ([name, *(cells.get(name, "") for cells in columns)] for name in names)
    draw_table(["", *groups], rows, title=title, gives_way=())
