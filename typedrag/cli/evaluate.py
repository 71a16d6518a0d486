"""`typedrag evaluate`: answer the questions of a dataset and measure the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli import options
from typedrag.cli.opening import say
from typedrag.cli.progress import RunsProgress, in_words
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from typedrag.experiments.evaluate import Evaluated
    from typedrag.experiments.results import GroupSummary, RunSummary


@click.command()
@options.config_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run, or of all runs.")
@click.option("--resume", is_flag=True, help="Continue the runs in --out.")
@click.option("--retry-failed", is_flag=True, help="With --resume: retry failed answers and judgments.")
@options.listed("--only", help="Make only this run of --config.")
@click.option(
    "--program", "program__program",
    help="typed_rag, rag, hanrag, … or a compiled one (a folder, models:/NAME@ALIAS or runs:/ID/PATH): "
    "one run, in --out itself.",
)  # fmt: skip
@click.option("--answers", type=click.Path(path_type=Path),
    help="Measure answers made elsewhere: JSONL with question or id, answer, perhaps passages; or a run's folder.",
)  # fmt: skip
@click.option("--system", help="Of --answers: the system they are of, which names its run and folder below --out.")
@options.program_options
@options.index_option
@click.option(
    "--lm", "lm__spec",
    help="embedded[:NAME|FILE.gguf], vllm[-offline]:MODEL or a DSPy name. Default: TYPEDRAG_LM, else embedded.",
)  # fmt: skip
@options.timeout_option
@click.option("--api-base", "lm__api_base", help="Address of an OpenAI-compatible server, for the LM.")
@click.option("--temperature", "lm__temperature", type=click.FloatRange(0), help="Temperature of the LM; default: 0.")
@click.option("--max-tokens", "lm__max_tokens", type=click.IntRange(1), help="Maximum tokens of a reply.")
@options.dataset_options(path="File or folder of the dataset; default: its public home.")
@click.option(
    "--split",
    "dataset__split",
    help="train, validation, test or all; default: the official dev or test file, else all.",
)
@click.option(
    "--limit", "dataset__limit", type=click.IntRange(1), help="Maximum questions, balanced over subsets and types."
)
@click.option("--seed", "dataset__seed", type=int, help="Random seed of the draw; default: 0.")
@options.listed("--metric", "metrics", help="Metric, such as linkage.")
@options.metric_option_option
@options.scorer_options("The LM behind judges, as --lm.")
@options.speed_options("Questions and judgments")
@options.executor_options()
@options.cap_options
@click.option(
    "--max-failures",
    "caps__failures",
    type=click.FloatRange(0, 1),
    help="Stop if a larger share of answers fails; default: 0.3.",
)
@click.option(
    "--replies", "--judgments", type=click.Path(path_type=Path), help="Store of LM replies; default: beside --out."
)
@options.tracking_options
@click.option(
    "--tracing/--no-tracing", "tracking__tracing", default=None,
    help="Whether to trace each LM call in MLflow; default: no.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    config: Path | None,
    out: Path,
    resume: bool,
    retry_failed: bool,
    only: str | None,
    as_json: bool,
    settings: tuple[str, ...],
    **flags: Any,
) -> None:
    """Answer the questions of a dataset and measure the answers.

    With --answers, those that another system gave are measured. Answers and judgments are written as they come, and
    --resume continues an interrupted run. The summary goes to stdout, everything else to stderr. The exit status is 1
    if a cap or too many failures stopped a run.
    """
    if retry_failed and not resume:
        raise InputError("--retry-failed is for runs that are continued", "Add --resume")
    values = _values_of(flags)
    if config is None and not isinstance(values["programs"], list) and not settings:
        raise InputError("nothing is named to be evaluated", "Name --program, --answers or --config")

    from typedrag.experiments.config_file import read_config
    from typedrag.experiments.evaluate import run_evaluation
    from typedrag.runs import is_run

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
            job,
            out,
            resume=resume,
            retry_failed=retry_failed,
            on_progress=display.show,
            on_notice=say,
        ):
            display.end()
            ended.append(evaluated)
            say(_end_of(evaluated))
    if as_json:
        click.echo(json.dumps([e.summary.to_dict() for e in ended], ensure_ascii=False, indent=1))
    else:
        _draw([e.summary for e in ended])
    if len(ended) < len(job.programs) or any(e.stopped for e in ended):
        ctx.exit(1)


def _values_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags in the shape of `EvaluationConfig`; options of the runs of a --config are laid over these."""
    values = options.nested(flags)
    program = {name: value for name, value in values.pop("program").items() if value}
    answers, system = values.pop("answers"), values.pop("system")
    if answers:
        if program:
            raise InputError("--answers are measured as they are, not those of a program", "Leave out either")
        program = {"program": f"answers:{answers}", **({"name": system} if system else {})}
    elif system:
        raise InputError("--system is of --answers", "Name them: --answers FILE")
    programs: Any = [program] if program else None
    if program.keys() == {"options"} and all(isinstance(options, dict) for options in program["options"].values()):
        programs = {run: {"options": options} for run, options in program["options"].items()}
    elif program and "program" not in program:
        raise InputError(
            "--as-published, --option, --reranker and --retriever are of a --program",
            "Name one: --program NAME; or a run of --config: -o RUN.NAME=VALUE, --set programs.RUN.reranker=…",
        )
    names = [name for name in (values["metrics"] or "").split(",") if name]
    metrics = options.metrics_of(values.pop("metric_options"), [{"name": name} for name in names])
    return {**values, "programs": programs, "metrics": metrics}


def _end_of(evaluated: Evaluated) -> str:
    run, spent = evaluated.run, in_words(evaluated.run.spent)
    if evaluated.stopped:
        return (
            f"{run.name}: stopped after {len(run.questions)} of {run.planned} questions: {evaluated.stopped}. "
            f"Continue with --resume ({spent}): {run.path}"
        )
    return f"{run.name}: {run.planned} questions ({spent}): {run.path}"


def _draw(summaries: list[RunSummary]) -> None:
    """Print the measures of each run, overall, by question type and by subset, and of all runs side by side."""
    for summary in summaries:
        types = summary.types if len(summary.types) > 1 else {}
        _draw_groups(f"{summary.name}, by question type", {"all": summary.overall, **types})
        if len(summary.subsets) > 1:
            _draw_groups(f"{summary.name}, by subset", {"all": summary.overall, **summary.subsets})
    if len(summaries) > 1:
        _draw_groups("all runs", {s.name: s.overall for s in summaries})


def _draw_groups(title: str, groups: dict[str, GroupSummary]) -> None:
    from typedrag.cli.tables import draw_table

    columns = [_cells(group) for group in groups.values()]
    names = dict.fromkeys(name for cells in columns for name in cells)
    draw_table(["", *groups], ([name, *(cells.get(name, "") for cells in columns)] for name in names), title=title)


def _cells(group: GroupSummary) -> dict[str, str]:
    cells = {
        "questions": str(group.questions),
        "answers failed": str(group.failed),
        "fallbacks": str(group.fallbacks),
        "not answered": group.share(group.not_answered),
        "from the LM's knowledge": group.share(group.knowledge),
        "grounded": group.share(group.grounded),
    }
    cells |= {f"{name} an answer": f"{mean:,.1f}" for name, mean in group.cost.items()}
    for name, metric in group.metrics.items():
        cells[f"{name}: scored"] = str(metric.n)
        cells[f"{name}: failed"] = str(metric.failed)
        if metric.not_measurable:
            cells[f"{name}: not measurable"] = str(metric.not_measurable)
        cells |= {f"{name}/{measure}": f"{value:.3f}" for measure, value in metric.measures.items()}
        cells |= {f"{name}/{measure}, answered": f"{value:.3f}" for measure, value in metric.answered.items()}
    return cells
