"""`typedrag compile`: make a program better on data that it is not tested on, and say whether it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.assignments import nested
from typedrag.cli.datasets import field_option
from typedrag.cli.lm_options import timeout_option
from typedrag.cli.opening import say
from typedrag.cli.progress import RunsProgress, counting, in_words
from typedrag.errors import LMUnavailable, RetrievalError

if TYPE_CHECKING:
    from rich.console import Console

    from typedrag.experiments.judges.saved import JudgeCheck
    from typedrag.optimizers.compile import CompileResult, HeldOut, Plan
    from typedrag.optimizers.compile.teleprompters import Candidate


def _show_names(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """List optimizers with their options, and what can be compiled."""
    if not wanted or ctx.resilient_parsing:
        return
    from typedrag.optimizers.compile.targets import ALONE, IN_ORDER, MODULES
    from typedrag.optimizers.compile.teleprompters import optimizer_class, optimizer_names

    click.echo("Optimizers (--optimizer), and their options (--optimizer-option NAME=VALUE):")
    for name in optimizer_names():
        known = optimizer_class(name)
        click.echo(f"\n  {name}: {known.about}")
        for option, field in known.Settings.model_fields.items():
            click.echo(f"    {option}: {' '.join((field.description or '').split())}")
    click.echo("\nModules of programs (--module, with commas between):\n")
    for name, module in MODULES.items():
        click.echo(f"  {name}: {module.about}")
    click.echo(f"  {IN_ORDER}: all of them, one after the other")
    click.echo("\nAlone, by labels of their own (--module; no --metric):\n")
    for target in ALONE.values():
        click.echo(f"  {target.name}: {target.about}")
    ctx.exit()


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file; see configs/. Other options override it.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the compile.")
@click.option("--resume", is_flag=True, help="Continue the compile that is in --out.")
@click.option("--estimate", "estimate_only", is_flag=True, help="Only say what it would take, after three questions.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_show_names,
    help="List optimizers with their options, and what can be compiled.",
)  # fmt: skip
@click.option("--program", help="typed_rag, rag, hanrag, … or a compiled one; default: typed_rag.")
@click.option("--as-published", is_flag=True, help="Of --program: Typed-RAG as its paper draws it.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="Any option of --program.")
@click.option("--reranker", help="Of --program: none, bi-encoder[:NAME], cross-encoder[:NAME], list:FOLDER, …")
@click.option("--retriever", help="Of --program: bm25, dense, hybrid[:WEIGHT] or auto.")
@click.option("--module", "modules", help="What of it is compiled; default: all. See --list.")
@click.option("--optimizer", help="How; see --list.")
@click.option("--optimizer-option", "optimizer_options", multiple=True, metavar="NAME=VALUE", help="Of --optimizer.")
@click.option("--budget", type=click.Choice(["light", "medium", "heavy"]), help="Default: light, 3,000 LM calls.")
@click.option("--max-lm-calls", type=click.IntRange(1), help="In the place of those of --budget.")
@click.option("--max-tokens-spent", type=click.IntRange(1), help="Tokens after which it stops.")
@click.option("--index", type=click.Path(path_type=Path), help="Default: TYPEDRAG_INDEX, else a sample corpus.")
@click.option("--dataset", help="See: typedrag datasets list.")
@click.option("--path", type=click.Path(path_type=Path), help="File or folder of the dataset.")
@click.option("--subset", help="Of the dataset; default: all.")
@field_option
@click.option("--test-limit", type=click.IntRange(1), help="Questions of the test split; default: all.")
@click.option(
    "--metric", "metrics",
    help="What is compiled against, with weights: truthfulness=1,coverage=0.5. Default: truthfulness and linkage.",
)  # fmt: skip
@click.option("--metric-option", "metric_options", multiple=True, metavar="METRIC.NAME=VALUE", help="Of a metric.")
@click.option("--lm", help="That it is compiled for: embedded[:NAME], vllm:MODEL or a DSPy name.")
@timeout_option
@click.option("--api-base", help="Address of its OpenAI-compatible server.")
@click.option("--max-tokens", type=click.IntRange(1), help="That it may write a call.")
@click.option("--prompt-lm", help="Writes instructions and reflects; default: --lm.")
@click.option("--prompt-api-base", help="Address of its server; default: --api-base.")
@click.option("--teacher-lm", help="Makes demonstrations; default: --lm.")
@click.option("--teacher-api-base", help="Address of its server; default: --api-base.")
@click.option("--scorer", help="The LM behind judges.")
@click.option("--scorer-api-base", help="Address of its server; default: --api-base.")
@click.option("--threads", type=click.IntRange(1), help="Questions under way at once; default: 16.")
@click.option("--calls-in-flight", type=click.IntRange(1), help="LM calls at once; default: 16.")
@click.option("--seed", type=int, help="Of everything that is drawn; default: 0.")
@click.option("--judgments", type=click.Path(path_type=Path), help="Store of judgments; default: in --out.")
@click.option("--register", "register_as", help="Name of the registered model in MLflow to make a version of.")
@click.option("--tracking/--no-tracking", default=None, help="Whether MLflow is told; by default it is.")
@click.option("--tracking-uri", help="Of MLflow; default: MLFLOW_TRACKING_URI, else in typedrag's cache folder.")
@click.option("--json", "as_json", is_flag=True, help="What came of it, as JSON.")
def command(config: Path | None, out: Path, resume: bool, estimate_only: bool, as_json: bool, **flags: Any) -> None:
    """Compile a program with a teleprompter, and test it once on questions it was not compiled on.

    The compiled program is the folder `program` in --out (a judge: `judge`), which holds the best so
    far at any moment; --resume continues a compile that was stopped or killed, and pays for nothing
    twice. The verdict goes to stdout, all else to stderr.
    """
    from typedrag.experiments.evaluate.config_file import read_into
    from typedrag.optimizers.compile import CompileConfig, Watching, plan_compile, run_compile
    from typedrag.optimizers.compile.run import is_begun

    wanted = read_into(CompileConfig, "compile", config, _values_of(flags))
    if estimate_only:
        _say_plan(plan_compile(wanted, out))
        return
    with RunsProgress() as runs:
        watching = Watching(plan=_say_plan, candidate=_say_candidate, test=runs.show, stage=counting, notice=say)
        try:
            result = run_compile(wanted, out, resume=resume, watching=watching)
        except (LMUnavailable, RetrievalError, KeyboardInterrupt):
            runs.end()
            if is_begun(out):
                say("what was done is kept: continue with --resume")
            raise
    for name, outcome in result.outcomes.items():
        if outcome.stopped:
            say(f"{name}: stopped: {outcome.stopped}; the best so far is kept")
    say(f"compiled ({in_words(result.spent)}): {result.folder}")
    if result.registered:
        say(f"registered: {result.registered}; serve it: typedrag registry promote {wanted.register_as} VERSION")
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    elif result.test:
        _draw(result.test, result)
    elif result.check:
        click.echo(_of_judge(result.check))
    else:
        click.echo(f"verdict: none: {result.untested}")


def _values_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags in the shape of `CompileConfig`."""
    from typedrag.datasets import field_mapping

    return {
        "program": _given(
            program=flags["program"],
            as_published=flags["as_published"] or None,
            options=nested(flags["options"], "--option") or None,
            reranker=flags["reranker"],
            retriever=flags["retriever"],
        ),
        "modules": flags["modules"],
        "optimizer": _given(
            name=flags["optimizer"], options=nested(flags["optimizer_options"], "--optimizer-option") or None
        ),
        "budget": {
            "name": flags["budget"],
            "lm_calls": flags["max_lm_calls"],
            "tokens": flags["max_tokens_spent"],
        },
        "dataset": {
            "name": flags["dataset"],
            "path": flags["path"],
            "subset": flags["subset"],
            "fields": field_mapping(flags["fields"]),
        },
        "test_limit": flags["test_limit"],
        "metrics": _metrics(flags["metrics"], nested(flags["metric_options"], "--metric-option")),
        "lm": {"spec": flags["lm"], "api_base": flags["api_base"], "max_tokens": flags["max_tokens"]},
        "prompt_lm": {"spec": flags["prompt_lm"], "api_base": flags["prompt_api_base"]},
        "teacher_lm": {"spec": flags["teacher_lm"], "api_base": flags["teacher_api_base"]},
        "scorer": {"spec": flags["scorer"], "api_base": flags["scorer_api_base"]},
        "index": flags["index"],
        "threads": flags["threads"],
        "calls_in_flight": flags["calls_in_flight"],
        "seed": flags["seed"],
        "judgments": flags["judgments"],
        "tracking": {"enabled": flags["tracking"], "uri": flags["tracking_uri"]},
        "register_as": flags["register_as"],
    }


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _metrics(spec: str | None, options: dict[str, Any]) -> list[dict[str, Any]] | None:
    from typedrag.errors import InputError
    from typedrag.metrics.objective import parse_objective

    weights = parse_objective(spec) if spec else {}
    if unknown := options.keys() - weights.keys():
        raise InputError(f"--metric-option is given for {', '.join(sorted(unknown))}", "Name the metric: --metric NAME")
    return [{"name": n, "weight": w, "options": options.get(n, {})} for n, w in weights.items()] or None


def _say_plan(plan: Plan) -> None:
    """Before it begins: what it will take."""
    for name, estimate in plan.estimates.items():
        say(f"{name or 'program'}: about {estimate.runs:,} runs and {estimate.proposals:,} proposals")
    limits = [f"{n:,} {unit}" for n, unit in ((plan.budget.lm_calls, "LM calls"), (plan.budget.tokens, "tokens")) if n]
    say(
        f"about {plan.lm_calls:,} LM calls and {plan.tokens:,} tokens; the budget ends it after "
        f"{' or '.join(limits)}. Then {plan.tests:,} runs on the test split"
    )


def _say_candidate(target: str, candidate: Candidate) -> None:
    part = "" if candidate.whole else f" on {candidate.n} of {candidate.of} examples"
    best = ", the best so far" if candidate.best else ""
    say(
        f"{target}, candidate {candidate.number}: {candidate.score:.3f}{part} (base {candidate.base:.3f}){best}: "
        f"{candidate.how} [{candidate.lm_calls:,} LM calls]"
    )


def _draw(test: HeldOut, result: CompileResult) -> None:
    from rich.console import Console

    from typedrag.experiments.compare.truth import say_truth, say_verdict

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    if test.comparison is None:
        click.echo("verdict: no better: no candidate did better than the base on the validation examples")
        return
    _draw_table(test, console)
    overall, truth = test.overall, test.truth
    if overall is None or overall.difference is None:
        click.echo("verdict: none: no test question could be measured of both base and compiled program")
        return
    corrected = f", corrected for {test.tests} compiled programs tested on them" if test.tests > 1 else ""
    click.echo(
        f"verdict: {say_verdict(test.verdict, truth)}: {overall.difference.value:+.3f} [{overall.difference.low:+.3f}, "
        f"{overall.difference.high:+.3f}] on {overall.n} test questions, p = {test.p:.4f}{corrected}"
    )
    if truth and test.verdict != "less truthful":
        click.echo(say_truth(truth))
    for warning in test.comparison.warnings:
        say(warning)
    click.echo(f"what changed: typedrag diff BASE {result.folder}")


def _draw_table(test: HeldOut, console: Console) -> None:
    from rich import box
    from rich.table import Table

    from typedrag.experiments.compare.compare import ALL
    from typedrag.experiments.formats import format_estimate, format_p, format_value

    table = Table(box=box.SIMPLE_HEAD, title="compiled against base, on the test split", title_justify="left")
    for heading in ("mean of", "n", "base", "compiled", "difference", "corrected p"):
        table.add_column(heading, justify="left" if heading == "mean of" else "right")
    for d in test.differences:
        if d.stratum == ALL or d.measure.startswith("objective/"):
            table.add_row(
                d.measure if d.stratum == ALL else f"  {d.stratum.name}",
                str(d.n),
                format_value(d.baseline.value if d.baseline else None),
                format_value(d.other.value if d.other else None),
                format_estimate(d.difference, signed=True),
                format_p(d.corrected_p),
            )
    console.print(table)


def _of_judge(check: JudgeCheck) -> str:
    said = "better: it may be used" if check.is_better else "not shown to be better: it is not used"
    return f"verdict: {said}: {check}"
