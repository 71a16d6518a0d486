"""`typedrag revelator`: train and measure HANRAG's revelator as a model of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import assignments, chosen, timeout_option, together
from typedrag.cli.progress import RunsProgress, counting
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from typedrag.optimizers.revelator import RoleScore
    from typedrag.programs import HANRAG

_DATA = click.Path(path_type=Path, exists=True, dir_okay=False)
_OWN_LM = "hanrag.revelator_lm"
_SHOWN_MISTAKES = 5


@click.group(name="revelator")
def command() -> None:
    """Train and measure the revelator of program hanrag."""


_program_options = together(
    click.option("--program", default="hanrag", show_default=True, help="hanrag, or a folder it was compiled to."),
    assignments("-o", "--option", "options", help="Set any option of --program; repeatable."),
)


@command.command()
@click.argument("data", type=_DATA)
@click.option("--base", required=True, help="A causal LM: a folder, or its name on the Hugging Face hub.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the training.")
@click.option("--resume", is_flag=True, help="Continue the training in --out from its last checkpoint.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Number of epochs; default: 1.")
@click.option("--max-steps", type=click.IntRange(1), help="Maximum steps, instead of --epochs.")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="Default: 1e-4.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows per batch, on each device; default: 8.")
@click.option("--accumulate", type=click.IntRange(1), help="Batches per step; default: 1.")
@click.option("--lora-rank", type=click.IntRange(1), help="Default: 8; alpha is twice the rank.")
@click.option("--max-tokens", type=click.IntRange(1), help="Maximum tokens; longer rows are left out. Default: 2,048.")
@click.option("--gradient-checkpointing", is_flag=True, default=None, help="Use less memory and more time.")
@click.option("--merge/--no-merge", default=None, help="Whether to save the merged model, too; default: yes.")
@click.option("--seed", type=int, help="Random seed; default: 0.")
@click.option(
    "--set",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Other settings of the training: warmup, lora_alpha, lora_dropout, checkpoint_every. Repeatable.",
)
@_program_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def train(
    data: Path,
    base: str,
    out: Path,
    resume: bool,
    others: tuple[str, ...],
    program: str,
    options: dict[str, Any],
    as_json: bool,
    **flags: Any,
) -> None:
    """Fine-tune a model with LoRA on DATA, the output of `typedrag datasets build revelator`.

    One model learns all roles, with the prompts of --program. vLLM can serve --out/model, or
    --out/adapter as a LoRA module of the base.
    """
    from typedrag.datasets import load_dataset
    from typedrag.experiments.config_file import read_into, with_settings
    from typedrag.optimizers.revelator import TrainingSettings, train_revelator

    settings = read_into(TrainingSettings, "revelator train", None, with_settings({}, others) | chosen(**flags))
    dataset = load_dataset("revelator", data)
    with counting("steps") as show:
        trained = train_revelator(
            base, dataset, _program(program, options), out, settings, resume=resume,
            on_step=lambda s: show(s.step, f"of {s.steps:,}, loss {s.loss:.3f}"),
        )  # fmt: skip
    if trained.left_out:
        say(f"left out: {trained.left_out:,} rows of more than {settings.max_tokens:,} tokens")
    losses = f"loss {trained.loss_before:.3f} before, {trained.loss_after:.3f} after {trained.steps:,} steps"
    say(f"{trained.rows:,} rows: {losses}")
    click.echo(json.dumps(trained.to_dict(), indent=1) if as_json else str(trained.folder))


@command.command()
@click.argument("data", type=_DATA)
@click.option("--lm", help="LM of the revelator: embedded[:NAME], vllm:MODEL or a DSPy name.")
@timeout_option
@click.option("--api-base", help="Address of its OpenAI-compatible server.")
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Instead: folder of a trained model or adapter, run in this process; slow.",
)
@click.option("--role", "roles", multiple=True, help="router, decomposer, refiner, relevance, ending. Repeatable.")
@click.option("--part", default="test", show_default=True, help="Part of DATA: train, validation, test or all.")
@click.option("--limit", type=click.IntRange(1), help="Maximum rows of a role; default: all.")
@click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once.")
@_program_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all confusions.")
def evaluate(
    data: Path,
    lm: str | None,
    api_base: str | None,
    model: Path | None,
    roles: tuple[str, ...],
    part: str,
    limit: int | None,
    threads: int,
    program: str,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Measure each role on DATA: accuracy and macro-F1 of labels, or the match of queries with the right ones.

    --program may be a compiled one; with -o hanrag.router=rule the router is a rule and needs no LM. If the program has
    its own LM for the roles (hanrag.revelator_lm), that is measured unless --lm or --model is given. Replies of --model
    are stored in typedrag's cache folder: after an interruption, the same command asks only for the missing ones.
    """
    import dspy

    from typedrag.core.question_types import RevelatorRole
    from typedrag.datasets import load_dataset
    from typedrag.experiments.config_file import with_settings
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.lms.lm import open_lm, use_lm
    from typedrag.optimizers.revelator import evaluate_roles

    if unknown := [role for role in roles if role not in list(RevelatorRole)]:
        raise InputError(f"no role is called '{unknown[0]}'", f"Roles: {', '.join(RevelatorRole)}")
    if model and lm:
        raise InputError("both --model and --lm were given", "Give one of them")
    if model and api_base:
        raise InputError("--api-base is that of --lm, and --model runs in this process", "Leave out one of them")
    measured = tuple(RevelatorRole(role) for role in roles) or tuple(RevelatorRole)
    if model or lm:
        options = with_settings(options, [f"{_OWN_LM}="])  # otherwise each role would ask its own LM
    dataset, hanrag = load_dataset("revelator", data), _program(program, options)
    own = hanrag.options.hanrag.revelator_lm
    if own and api_base:
        raise InputError(f"--api-base is that of --lm, and the program's revelator is '{own}'", "Give --lm, too")
    limit_calls_in_flight(threads)
    needs_lm = measured != (RevelatorRole.ROUTER,) or RevelatorRole.ROUTER in hanrag.revelator()
    if model:
        using = _in_this_process(model)
    elif needs_lm and not own:
        using = use_lm(open_lm(lm, api_base=api_base))
    else:
        using = dspy.context()
    with using, RunsProgress(label="{}") as shown:
        scores = evaluate_roles(
            dataset, hanrag, roles=measured, part=part, limit=limit, threads=threads, listener=shown.show
        )
    if as_json:
        click.echo(json.dumps([asdict(score) for score in scores], indent=1))
    else:
        _draw(scores)


@contextmanager
def _in_this_process(model: Path) -> Iterator[None]:
    """Use the LM in a folder, and store its replies."""
    import dspy

    from typedrag.lms.adapter import SchemaAdapter
    from typedrag.lms.models import cache_dir
    from typedrag.lms.replies import use_reply_store
    from typedrag.optimizers.revelator import open_local_lm

    lm = open_local_lm(model)
    # what cannot be read is a model's reply too, and counts as wrong
    replies = use_reply_store(cache_dir() / "revelator-replies.sqlite", keep_unreadable=True)
    with replies, dspy.context(lm=lm, adapter=SchemaAdapter()):
        yield


def _program(name: str, options: dict[str, Any]) -> HANRAG:
    """The program with the roles, which never retrieves."""
    from typedrag.experiments.loading import program_source
    from typedrag.programs import HANRAG

    source = program_source(name)
    program = source.without_index(source.options(as_published=False, overrides=options))
    if not isinstance(program, HANRAG):
        raise InputError(f"program '{name}' has no revelator", "Name hanrag, or a folder that it was compiled to")
    return program


def _draw(scores: list[RoleScore]) -> None:
    from typedrag.cli.tables import draw_table, wide_console

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    rows = [
        [
            score.role,
            str(score.n),
            str(score.failed),
            str(score.interval or share(score.score)),
            share(score.measures.get("macro_f1")),
            share(score.majority),
        ]
        for score in scores
    ]
    console = wide_console(80)
    draw_table(("role", "n", "failed", "score", "macro-F1", "most frequent"), rows, console=console)
    for score in scores:
        mistakes = score.confusion.mistakes() if score.confusion else []
        for right, wrong, count in mistakes[:_SHOWN_MISTAKES]:
            console.print(f"{score.role}: {right} taken for {wrong}: {count}", markup=False)
