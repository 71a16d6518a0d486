"""`typedrag compile`: compile a program, and test it on questions it was not compiled on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli import options
from typedrag.cli.opening import say
from typedrag.cli.progress import RunsProgress, in_words

if TYPE_CHECKING:
    from typedrag.optimizers.compile import CompileResult, HeldOut, Plan
    from typedrag.optimizers.compile.teleprompters.candidates import Candidate


def _show_names(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """List optimizers with their options, and the modules that can be compiled."""
    if not value or ctx.resilient_parsing:
        return
    from typedrag.optimizers.compile.labelled_targets import ALONE
    from typedrag.optimizers.compile.targets import MODULES
    from typedrag.optimizers.compile.teleprompters import optimizer_class, optimizer_names
    from typedrag.optimizers.compile.teleprompters.any_of_dspy import PREFIX, usable_names

    click.echo("Optimizers (--optimizer), and their options (--optimizer-option NAME=VALUE):")
    for name in optimizer_names():
        known = optimizer_class(name)
        click.echo(f"\n  {name}: {known.about}")
        for option, field in known.Settings.model_fields.items():
            click.echo(f"    {option}: {' '.join((field.description or '').split())}")
    click.echo(f"\n  {PREFIX}NAME: a teleprompter of DSPy, with its options: {', '.join(usable_names())}")
    click.echo("\nModules of programs (--module, with commas between):\n")
    for name, module in MODULES.items():
        click.echo(f"  {name}: {module.about}")
    click.echo("\nAlone, by labels of their own (--module; no --metric):\n")
    for name, target in ALONE.items():
        click.echo(f"  {name}: {target.about}")
    ctx.exit()


@click.command()
@options.config_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the compile.")
@click.option("--resume", is_flag=True, help="Continue the compile in --out.")
@click.option("--estimate", "estimate_only", is_flag=True, help="Only estimate the cost, from three questions.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_show_names,
    help="List optimizers with their options, and the modules that can be compiled.",
)  # fmt: skip
@click.option("--program", "program__program", help="typed_rag, rag, hanrag, … or a compiled one; default: typed_rag.")
@options.program_options
@options.listed("--module", "modules", help="Module to compile; default: all. See --list.")
@click.option("--optimizer", "optimizer__name", help="Teleprompter; see --list.")
@options.assignments("--optimizer-option", "optimizer__options", help="Option of --optimizer; repeatable.")
@click.option(
    "--budget", "budget__name", type=click.Choice(["light", "medium", "heavy"]), help="LM calls; default: light, 3,000."
)
@click.option("--max-lm-calls", "budget__lm_calls", type=click.IntRange(1), help="LM calls; overrides --budget.")
@click.option("--max-tokens-spent", "budget__tokens", type=click.IntRange(1), help="Stop after this many tokens.")
@options.index_option
@options.dataset_options(path="File or folder of the dataset.")
@click.option("--test-limit", type=click.IntRange(1), help="Number of test questions; default: all.")
@options.listed(
    "--metric", "metrics",
    help="Metric to compile against, with its weight: coverage=0.5. Default: truthfulness, linkage and coverage.",
)  # fmt: skip
@options.metric_option_option
@click.option("--lm", "lm__spec", help="LM to compile for: embedded[:NAME], vllm:MODEL or a DSPy name.")
@options.timeout_option
@click.option("--api-base", "lm__api_base", help="Address of its OpenAI-compatible server.")
@click.option("--max-tokens", "lm__max_tokens", type=click.IntRange(1), help="Maximum tokens of a reply.")
@click.option("--prompt-lm", "prompt_lm__spec", help="LM that writes instructions and reflects; default: --lm.")
@click.option("--prompt-api-base", "prompt_lm__api_base", help="Address of its server; default: --api-base.")
@click.option("--teacher-lm", "teacher_lm__spec", help="LM that writes demonstrations; default: --lm.")
@click.option("--teacher-api-base", "teacher_lm__api_base", help="Address of its server; default: --api-base.")
@options.scorer_options("The LM behind judges.")
@options.speed_options("Questions")
@click.option("--seed", type=int, help="Random seed; default: 0.")
@click.option(
    "--replies", "--judgments", type=click.Path(path_type=Path), help="Store of LM replies; default: in --out."
)
@click.option("--register", "register_as", help="Register the result in MLflow as a version of the model of this name.")
@options.tracking_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    config: Path | None,
    out: Path,
    resume: bool,
    estimate_only: bool,
    as_json: bool,
    settings: tuple[str, ...],
    **flags: Any,
) -> None:
    """Compile a program with a teleprompter, and test it once on questions it was not compiled on.

    The compiled program is the folder `program` in --out (a judge: `judge`), which always holds the
    best so far. --resume continues an interrupted compile, and pays for nothing twice. The verdict goes
    to stdout, everything else to stderr.
    """
    from typedrag.experiments.config_file import read_into
    from typedrag.optimizers.compile import CompileConfig, CompileProgress, plan_compile, run_compile
    from typedrag.optimizers.compile.run import is_begun

    job = read_into(CompileConfig, "compile", config, _values_of(flags), settings)
    if estimate_only:
        _say_plan(plan_compile(job, out))
        return
    with RunsProgress(lambda: is_begun(out)) as runs:
        watching = CompileProgress(_say_plan, _say_candidate, runs.show, say)
        result = run_compile(job, out, resume=resume, watching=watching)
    if result.outcome.stopped:
        say(f"{result.target}: stopped: {result.outcome.stopped}; the best so far is kept")
    say(f"compiled ({in_words(result.spent)}): {result.folder}")
    if result.registered:
        say(f"registered: {result.registered}; serve it: typedrag registry promote {job.register_as} VERSION")
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    else:
        _draw(result.test, result)


def _values_of(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags in the shape of `CompileConfig`."""
    from typedrag.metrics.objective import written_weights

    values = options.nested(flags)
    weights = written_weights(values["metrics"]) if values["metrics"] else {}
    named = [options.chosen(name=name, weight=weight) for name, weight in weights.items()]
    metrics = options.metrics_of(values.pop("metric_options"), named)
    return {**values, "metrics": metrics}


def _say_plan(plan: Plan) -> None:
    """Print the estimated cost, before the compile begins."""
    from typedrag.experiments.cost import in_words

    limits = [f"{n:,} {unit}" for n, unit in ((plan.lm_calls, "LM calls"), (plan.tokens, "tokens")) if n]
    if plan.types:
        say(f"the types of {plan.types:,} questions are named by the LM first, in about as many calls of the budget")
    runs = plan.estimate.runs
    cost = in_words(plan.estimate.total, runs or 1, "run")
    say(cost if runs else f"{cost.partition(';')[0]}, as many as the budget allows")
    say(f"the budget ends it after {' or '.join(limits)}. Then {plan.tests:,} runs on the test split")


def _say_candidate(target: str, candidate: Candidate) -> None:
    part = "" if candidate.full_valset else f" on {candidate.n} of {candidate.of} examples"
    best = ", the best so far" if candidate.best else ""
    say(
        f"{target}, candidate {candidate.number}: {candidate.score:.3f}{part} (base {candidate.base:.3f}){best}: "
        f"{candidate.how} [{candidate.lm_calls:,} LM calls]"
    )


def _draw(test: HeldOut, result: CompileResult) -> None:
    from typedrag.experiments.formats import format_estimate
    from typedrag.experiments.held_out import format_truth, format_verdict
    from typedrag.optimizers.compile.run import JUDGE

    if test.comparison is None:
        click.echo("verdict: no better: no candidate did better than the base on the validation examples")
        return
    _draw_table(test)
    overall, truth = test.overall, test.truth.difference if test.truth else None
    if overall is None or overall.difference is None:
        click.echo("verdict: none: no test question could be measured of both base and compiled program")
        return
    corrected = f", corrected for {test.tests} compiled programs tested on them" if test.tests > 1 else ""
    difference = format_estimate(overall.difference, signed=True)
    click.echo(
        f"verdict: {format_verdict(test.verdict, truth)}: {difference} on {overall.n} test questions, "
        f"p = {test.p:.4f}{corrected}"
    )
    if truth and test.verdict != "less truthful":
        click.echo(format_truth(truth))
    if overall.answered and overall.answered.difference:
        of_answered = format_estimate(overall.answered.difference, signed=True)
        click.echo(f"over the {overall.answered.n} questions that both answered: {of_answered}")
    for warning in test.comparison.warnings:
        say(warning)
    if result.folder.name == JUDGE:
        click.echo("a judge is used only by LMs that it was shown to be better with")
    else:
        click.echo(f"what changed: typedrag diff BASE {result.folder}")


def _draw_table(test: HeldOut) -> None:
    from typedrag.cli.tables import draw_table, wide_console
    from typedrag.experiments.compare import ALL
    from typedrag.experiments.formats import format_estimate, format_p, format_value

    rows = [
        [
            d.measure if d.stratum == ALL else f"  {d.stratum.name}",
            str(d.n),
            format_value(d.baseline.value if d.baseline else None),
            format_value(d.other.value if d.other else None),
            format_estimate(d.difference, signed=True),
            format_p(d.corrected_p),
        ]
        for d in test.differences
        if d.stratum == ALL or d.measure.startswith("objective/")
    ]
    headings = ("mean of", "n", "base", "compiled", "difference", "corrected p")
    draw_table(headings, rows, title="compiled against base, on the test split", console=wide_console(160))
