"""`typedrag compile`: compile a program, and test it on questions it was not compiled on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from typedrag.cli import options
from typedrag.cli.registry import describe_registered
from typedrag.cli.terminal import RunsProgress, draw_table, echo, in_words, print_json, say, wide_console
from typedrag.experiments.formats import format_estimate, format_p, format_value
from typedrag.optimizers.compile.config import CompileConfig

if TYPE_CHECKING:
    from typedrag.optimizers.compile import CompileResult, HeldOut, Plan
    from typedrag.optimizers.compile.prompt_optimizers.candidates import Candidate

FIELDS = options.field_options(
    CompileConfig,
    ("program.program", "typed_rag, rag, hanrag, … or a compiled one; default: typed_rag."),
    "program.as_published",
    ("program.options -o --option", "Set any option of --program; repeatable."),
    "program.reranker", "program.retriever",
    ("modules --module", "Module to compile; default: all. See --list."),
    ("optimizer.name --optimizer", "Optimizer; see --list."),
    ("optimizer.options --optimizer-option", "Option of --optimizer; repeatable."),
    "budget.name --budget", "budget.lm_calls --max-lm-calls", "budget.tokens --max-tokens-spent", "index",
    "dataset.name --dataset", "dataset.path", "dataset.subset", "dataset.fields --field", "test_limit",
    ("lm.spec --lm", "LM to compile for: embedded[:NAME], vllm:MODEL or a DSPy name."),
    "lm.api_base", "lm.max_tokens", "prompt_lm.spec --prompt-lm",
    ("prompt_lm.api_base --prompt-api-base", "Address of its server; default: --api-base."),
    "teacher_lm.spec --teacher-lm",
    ("teacher_lm.api_base --teacher-api-base", "Address of its server; default: --api-base."),
    "scorer.spec --scorer",
    ("scorer.api_base --scorer-api-base", "Address of its server; default: --api-base."),
    "threads", "calls_in_flight", "seed", "replies", "register_as --register", "tracking.enabled --tracking",
    "tracking.uri --tracking-uri", "tracking.experiment --experiment",
)  # fmt: skip


def _list_names(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from typedrag.optimizers.compile.prompt_optimizers import optimizer_class, optimizer_names
    from typedrag.optimizers.compile.prompt_optimizers.any_of_dspy import PREFIX, usable_names
    from typedrag.optimizers.compile.targets import ALONE, MODULES

    echo("Optimizers (--optimizer), and their options (--optimizer-option NAME=VALUE):")
    for name in optimizer_names():
        known = optimizer_class(name)
        echo(f"\n  {name}: {known.about}")
        for option, field in known.model_fields.items():
            echo(f"    {option}: {' '.join((field.description or '').split())}")
    echo(f"\n  {PREFIX}NAME: an optimizer of DSPy, with its options: {', '.join(usable_names())}")
    echo("\nModules of programs (--module, with commas between):\n")
    for name, about in MODULES.items():
        echo(f"  {name}: {about}")
    echo("\nAlone, by labels of their own (--module; no --metric):\n")
    for name, target in ALONE.items():
        echo(f"  {name}: {target.about}")
    ctx.exit()


LIST = click.Option(
    ["--list"], is_flag=True, is_eager=True, expose_value=False, callback=_list_names,
    help="List optimizers with their options, and the modules that can be compiled.",
)  # fmt: skip


@options.command(FIELDS, [LIST], name="compile", timeout=True, old={"--judgments": "--replies"})
def command(
    *,
    config: options.ConfigFile = None,
    settings: options.Settings = (),
    out: Annotated[Path, "Folder of the compile."],
    resume: Annotated[bool, "Continue the compile in --out."] = False,
    estimate: Annotated[bool, "Only estimate the cost, from three questions."] = False,
    metrics: Annotated[
        str | None, options.Joined(), "--metric",
        "Metric to compile against, with its weight: coverage=0.5. Default: truthfulness, linkage and coverage.",
    ] = None,
    metric_options: options.MetricOptions,
    as_json: options.Json = False,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Compile a program with an optimizer, and test it once on questions it was not compiled on.

    The compiled program is the folder `program` in --out (a judge: `judge`), which always holds the
    best so far. --resume continues an interrupted compile, and pays for nothing twice. The verdict goes
    to stdout, everything else to stderr.
    """
    from typedrag.experiments.config_file import read_into
    from typedrag.metrics.objective import written_weights
    from typedrag.optimizers.compile import CompileProgress, plan_compile, run_compile
    from typedrag.optimizers.compile.run import is_begun

    weights = written_weights(metrics) if metrics else {}
    named = [options.chosen(name=name, weight=weight) for name, weight in weights.items()]
    values["metrics"] = options.named_metrics(metric_options, named)
    job = read_into(CompileConfig, "compile", config, values, settings)
    if estimate:
        return _say_plan(plan_compile(job, out))
    with RunsProgress(lambda: is_begun(out)) as runs:
        watching = CompileProgress(_say_plan, _say_candidate, runs.show, say)
        result = run_compile(job, out, resume=resume, watching=watching)
    if result.outcome.stopped:
        say(f"{result.target}: stopped: {result.outcome.stopped}; the best so far is kept")
    say(f"compiled ({in_words(result.spent)}): {result.folder}")
    if result.registered:
        unchanged = result.test.verdict == "unchanged"
        say(describe_registered(result.registered, job.tracking.uri, force=unchanged))
    if as_json:
        return print_json(result.to_dict())
    return _draw(result.test, result)


def _say_plan(plan: Plan) -> None:
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
    from typedrag.experiments.compare import ALL
    from typedrag.experiments.held_out import format_truth, format_verdict
    from typedrag.optimizers.compile.run import JUDGE

    if test.comparison is None:
        unchanged = f"no better than its base, 0 of {result.predictors} predictors changed"
        echo(f"verdict: {unchanged}: no candidate did better on the validation examples")
        return
    rows = []
    for d in test.differences:
        if d.stratum == ALL or d.measure.startswith("objective/"):
            means = (format_value(each.value if each else None) for each in (d.baseline, d.other))
            name, difference = d.measure if d.stratum == ALL else f"  {d.stratum.name}", d.difference
            rows.append([name, str(d.n), *means, format_estimate(difference, signed=True), format_p(d.corrected_p)])
    headings = ("mean of", "n", "base", "compiled", "difference", "corrected p")
    title, gives_way = "compiled against base, on the test split", ("n", "compiled", "base")
    draw_table(headings, rows, title=title, gives_way=gives_way, console=wide_console(160))
    overall, truth = test.overall, test.truth.difference if test.truth else None
    if overall is None or overall.difference is None:
        echo("verdict: none: no test question could be measured of both base and compiled program")
        return
    corrected = f", corrected for {test.tests} compiled programs tested on them" if test.tests > 1 else ""
    gain = f"{format_estimate(overall.difference, signed=True)} on {overall.n} test questions"
    echo(f"verdict: {format_verdict(test.verdict, truth)}: {gain}, p = {test.p:.4f}{corrected}")
    if truth and test.verdict != "less truthful":
        echo(format_truth(truth))
    if overall.answered and overall.answered.difference:
        of_answered = format_estimate(overall.answered.difference, signed=True)
        echo(f"over the {overall.answered.n} questions that both answered: {of_answered}")
    for warning in test.comparison.warnings:
        say(warning)
    if result.folder.name == JUDGE:
        echo("a judge is used only by LMs that it was shown to be better with")
    else:
        echo(f"what changed: typedrag research diff BASE {result.folder}")
