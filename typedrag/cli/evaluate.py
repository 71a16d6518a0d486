"""`typedrag evaluate`: answer the questions of a dataset and measure the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.assignments import nested
from typedrag.cli.datasets import field_option
from typedrag.cli.lm_options import timeout_option
from typedrag.cli.opening import say
from typedrag.cli.progress import RunsProgress, in_words
from typedrag.errors import InputError, LMUnavailable, RetrievalError

if TYPE_CHECKING:
    from typedrag.experiments.evaluate.evaluate import Evaluated


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file; see configs/. Other options override it.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder of the run, or of the runs' folders."
)
@click.option("--resume", is_flag=True, help="Continue what is there already.")
@click.option("--retry-failed", is_flag=True, help="With --resume: make failed answers and judgments again.")
@click.option("--only", help="Of the runs of --config those of these names, with commas between.")
@click.option(
    "--program",
    help="typed_rag, rag, hanrag, … or a compiled one (a folder, models:/NAME@ALIAS or runs:/ID/PATH): "
    "a single run, in --out itself.",
)
@click.option("--as-published", is_flag=True, help="Of --program: Typed-RAG as its paper draws it.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="Any option of --program.")
@click.option("--reranker", help="Of --program: none, bi-encoder[:NAME], cross-encoder[:NAME], list:FOLDER, …")
@click.option("--retriever", help="Of --program: bm25, dense, hybrid[:WEIGHT] or auto.")
@click.option("--index", type=click.Path(path_type=Path), help="Default: TYPEDRAG_INDEX, else a sample corpus.")
@click.option("--lm", help="embedded[:NAME|FILE.gguf], vllm:MODEL or a DSPy name. Default: TYPEDRAG_LM, else embedded.")
@timeout_option
@click.option("--api-base", help="Address of an OpenAI-compatible server, for the LM.")
@click.option("--temperature", type=click.FloatRange(0), help="Of the LM; 0 by default.")
@click.option("--max-tokens", type=click.IntRange(1), help="That the LM may write a call.")
@click.option("--dataset", help="See: typedrag datasets list.")
@click.option(
    "--path", type=click.Path(path_type=Path), help="File or folder of the dataset; default: its public home."
)
@click.option("--subset", help="Of the dataset; default: all.")
@field_option
@click.option("--split", help="train, validation, test or all; default: the official dev or test file, else all.")
@click.option("--limit", type=click.IntRange(1), help="Questions, drawn in turn from each subset and type.")
@click.option("--seed", type=int, help="Of the draw; default: 0.")
@click.option("--metric", "metrics", help="Names with commas between, such as linkage,coverage.")
@click.option("--metric-option", "metric_options", multiple=True, metavar="METRIC.NAME=VALUE", help="Of a metric.")
@click.option("--scorer", help="The LM behind judges, as --lm.")
@click.option("--scorer-api-base", help="Address of its server; default: --api-base.")
@click.option("--threads", type=click.IntRange(1), help="Questions and judgments under way at once; default: 16.")
@click.option("--calls-in-flight", type=click.IntRange(1), help="LM calls at once; default: 16.")
@click.option("--max-tokens-spent", type=click.IntRange(1), help="Stop where LMs have read and written so many.")
@click.option("--max-lm-calls", type=click.IntRange(1), help="Stop after so many LM calls.")
@click.option("--max-cost", type=click.FloatRange(0, min_open=True), help="Stop where so many dollars are spent.")
@click.option("--max-failures", type=click.FloatRange(0, 1), help="Stop where a larger share fails; default: 0.3.")
@click.option("--judgments", type=click.Path(path_type=Path), help="Store that runs share; default: beside --out.")
@click.option("--tracking/--no-tracking", default=None, help="Whether MLflow is told; by default it is.")
@click.option("--tracking-uri", help="Of MLflow; default: MLFLOW_TRACKING_URI, else in typedrag's cache folder.")
@click.option("--tracing/--no-tracing", default=None, help="Whether MLflow traces each LM call; by default not.")
@click.option("--json", "as_json", is_flag=True, help="The summaries as JSON.")
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
    **flags: Any,
) -> None:
    """Answer the questions of a dataset and measure the answers.

    Answers and judgments are written as they come: a run that was stopped or killed goes on with
    --resume. The summary goes to stdout, all else to stderr. The exit status is 1 if a run was
    stopped before its end, by a cap or by too many failures.
    """
    if retry_failed and not resume:
        raise InputError("--retry-failed is for runs that are continued", "Add --resume")
    values = _values_of(flags)
    if config is None and values["programs"] is None:
        raise InputError("nothing is named to be evaluated", "Name --program or --config")

    from typedrag.experiments.evaluate.config_file import read_config
    from typedrag.experiments.evaluate.evaluate import run_evaluation
    from typedrag.experiments.evaluate.run_store import is_run

    wanted = read_config(config, values)
    if only is not None:
        names = only.split(",")
        chosen = [p for p in wanted.programs if p.name in names]
        if len(chosen) < len(names):
            raise InputError(f"--only {only}: not all are runs", f"Runs: {', '.join(p.name for p in wanted.programs)}")
        wanted = wanted.model_copy(update={"programs": tuple(chosen)})
    ended: list[Evaluated] = []
    with RunsProgress() as display:
        try:
            for evaluated in run_evaluation(
                wanted,
                out,
                resume=resume,
                retry_failed=retry_failed,
                on_progress=display.show,
                on_notice=say,
            ):
                display.end()
                ended.append(evaluated)
                say(_end_of(evaluated))
        except (LMUnavailable, RetrievalError, KeyboardInterrupt):
            display.end()
            if any(is_run(out / program.name) for program in wanted.programs):
                say("what was done is kept: continue with --resume")
            raise
    if as_json:
        click.echo(json.dumps([e.summary.to_dict() for e in ended], ensure_ascii=False, indent=1))
    else:
        _draw(ended)
    if len(ended) < len(wanted.programs) or any(e.stopped for e in ended):
        ctx.exit(1)


def _values_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags in the shape of `EvaluationConfig`."""
    from typedrag.datasets import field_mapping

    program = {
        "program": flags["program"],
        "as_published": flags["as_published"] or None,
        "options": nested(flags["options"], "--option"),
        "reranker": flags["reranker"],
        "retriever": flags["retriever"],
    }
    if flags["program"] is None and any(program.values()):
        raise InputError(
            "--as-published, --option, --reranker and --retriever are of a --program", "Name one: --program NAME"
        )
    options = nested(flags["metric_options"], "--metric-option")
    metrics = [{"name": name, "options": options.pop(name, {})} for name in (flags["metrics"] or "").split(",") if name]
    if options:
        raise InputError(f"--metric-option is given for {', '.join(options)}", "Name the metric: --metric NAME,…")
    return {
        "programs": [{n: v for n, v in program.items() if v}] if flags["program"] else None,
        "index": flags["index"],
        "lm": {
            "spec": flags["lm"],
            "api_base": flags["api_base"],
            "temperature": flags["temperature"],
            "max_tokens": flags["max_tokens"],
        },
        "dataset": {
            "name": flags["dataset"],
            "path": flags["path"],
            "subset": flags["subset"],
            "fields": field_mapping(flags["fields"]),
            "split": flags["split"],
            "limit": flags["limit"],
            "seed": flags["seed"],
        },
        "metrics": metrics or None,
        "scorer": {"spec": flags["scorer"], "api_base": flags["scorer_api_base"]},
        "threads": flags["threads"],
        "calls_in_flight": flags["calls_in_flight"],
        "caps": {
            "tokens": flags["max_tokens_spent"],
            "lm_calls": flags["max_lm_calls"],
            "cost": flags["max_cost"],
            "failures": flags["max_failures"],
        },
        "judgments": flags["judgments"],
        "tracking": {"enabled": flags["tracking"], "uri": flags["tracking_uri"], "tracing": flags["tracing"]},
    }


def _end_of(evaluated: Evaluated) -> str:
    run, spent = evaluated.run, in_words(evaluated.run.spent)
    if evaluated.stopped:
        return (
            f"{run.name}: stopped after {len(run.questions)} of {run.planned} questions: {evaluated.stopped}. "
            f"Continue with --resume ({spent}): {run.path}"
        )
    return f"{run.name}: {run.planned} questions ({spent}): {run.path}"


def _draw(ended: list[Evaluated]) -> None:
    from rich.console import Console

    from typedrag.cli.summary import draw_comparison, draw_run

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for evaluated in ended:
        draw_run(evaluated.summary, console)
    if len(ended) > 1:
        draw_comparison([e.summary for e in ended], console)
