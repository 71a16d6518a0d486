"""`typedrag revelator`: HANRAG's revelator as a model of its own, trained and measured."""

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
from typedrag.cli.progress import counting
from typedrag.errors import InputError

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
    assignments("-o", "--option", "options", help="Any of --program."),
)


@command.command()
@click.argument("data", type=_DATA)
@click.option("--base", required=True, help="A causal LM: a folder, or its name on the Hugging Face hub.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the training.")
@click.option("--resume", is_flag=True, help="Go on with the training in --out from its last checkpoint.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="How often a row is seen; default: 1.")
@click.option("--max-steps", type=click.IntRange(1), help="In the place of --epochs.")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="Default: 1e-4.")
@click.option("--batch-size", type=click.IntRange(1), help="Rows at once, on each device; default: 8.")
@click.option("--accumulate", type=click.IntRange(1), help="Batches for a step; default: 1.")
@click.option("--lora-rank", type=click.IntRange(1), help="Default: 8; alpha is twice the rank.")
@click.option("--max-tokens", type=click.IntRange(1), help="Of a row; a longer one is left out. Default: 2,048.")
@click.option("--gradient-checkpointing", is_flag=True, default=None, help="Less memory, more time.")
@click.option("--merge/--no-merge", default=None, help="Whether the whole model is saved, too; it is by default.")
@click.option("--seed", type=int, help="Default: 0.")
@click.option(
    "--set",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the training, too: warmup, lora_alpha, lora_dropout, checkpoint_every.",
)
@_program_options
@click.option("--json", "as_json", is_flag=True, help="What came of it, as JSON.")
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
    """Fine-tune a model with LoRA on DATA, which `typedrag datasets build revelator` made.

    All roles are mixed in one model, in the prompts that --program asks with. --out/model can be
    served by vLLM, and --out/adapter as a LoRA module of the base.
    """
    from typedrag.datasets import load_dataset
    from typedrag.experiments.evaluate.config_file import read_into, with_settings
    from typedrag.optimizers.revelator import TrainingSettings, train_revelator

    settings = read_into(TrainingSettings, "revelator train", None, with_settings({}, others) | chosen(**flags))
    dataset = load_dataset("revelator", data)
    with counting("steps") as show:

        def on_step(step: int, steps: int, loss: float | None) -> None:
            show(step, f"of {steps:,}" + ("" if loss is None else f", loss {loss:.3f}"))

        asked = _program(program, options)
        trained = train_revelator(base, dataset, asked, out, settings, resume=resume, on_step=on_step)
    if trained.left_out:
        say(f"left out: {trained.left_out:,} rows of more than {settings.max_tokens:,} tokens")
    said = f"loss {trained.loss_before:.3f} before, {trained.loss_after:.3f} after {trained.steps:,} steps"
    say(f"{trained.rows:,} rows: {said}")
    click.echo(json.dumps(trained.to_dict(), indent=1) if as_json else str(trained.folder))


@command.command()
@click.argument("data", type=_DATA)
@click.option("--lm", help="That is the revelator: embedded[:NAME], vllm:MODEL or a DSPy name.")
@timeout_option
@click.option("--api-base", help="Address of its OpenAI-compatible server.")
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Instead: what was trained, model or adapter, run in this process; slow.",
)
@click.option("--role", "roles", multiple=True, help="router, decomposer, refiner, relevance, ending. Repeatable.")
@click.option("--part", default="test", show_default=True, help="Of DATA: train, validation, test or all.")
@click.option("--limit", type=click.IntRange(1), help="Rows of a role at most; default: all.")
@click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once.")
@_program_options
@click.option("--json", "as_json", is_flag=True, help="With what was taken for what, as JSON.")
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
    """Measure each role on DATA: accuracy and macro-F1 of labels, or how near queries come to the right ones.

    --program may be a compiled one; with -o hanrag.router=rule the router is a rule, and needs no LM. Where it has an
    LM of its own for the roles (hanrag.revelator_lm), that is measured unless --lm or --model is given.
    What --model replies is kept as it comes, in typedrag's cache folder: after a kill, the same command asks only for
    what is missing.
    """
    import dspy

    from typedrag.datasets import load_dataset
    from typedrag.experiments.evaluate.config_file import with_settings
    from typedrag.lms.lm import limit_calls_in_flight, open_lm, use_lm
    from typedrag.optimizers.revelator import evaluate_roles
    from typedrag.question_types import RevelatorRole

    if unknown := [role for role in roles if role not in list(RevelatorRole)]:
        raise InputError(f"no role is called '{unknown[0]}'", f"Roles: {', '.join(RevelatorRole)}")
    if model and lm:
        raise InputError("both --model and --lm were given", "Give one of them")
    if model and api_base:
        raise InputError("--api-base is that of --lm, and --model runs in this process", "Leave out one of them")
    wanted = tuple(RevelatorRole(role) for role in roles) or tuple(RevelatorRole)
    if model or lm:
        options = with_settings(options, [f"{_OWN_LM}="])  # or each role would go on asking that one
    dataset, asked = load_dataset("revelator", data), _program(program, options)
    own = asked.options.hanrag.revelator_lm
    if own and api_base:
        raise InputError(f"--api-base is that of --lm, and the program's revelator is '{own}'", "Give --lm, too")
    limit_calls_in_flight(threads)
    needs_lm = wanted != (RevelatorRole.ROUTER,) or RevelatorRole.ROUTER in asked.revelator()
    if model:
        using = _in_this_process(model)
    elif needs_lm and not own:
        using = use_lm(open_lm(lm, api_base=api_base))
    else:
        using = dspy.context()
    with using, counting("rows") as show:
        scores = evaluate_roles(dataset, asked, roles=wanted, part=part, limit=limit, threads=threads, on_done=show)
    if as_json:
        click.echo(json.dumps([asdict(score) for score in scores], indent=1))
    else:
        _draw(scores)


@contextmanager
def _in_this_process(model: Path) -> Iterator[None]:
    """Ask the LM in a folder, and keep its replies.

    Raises:
        LMUnavailable: If it cannot be loaded.
        InputError: If replies cannot be kept.
    """
    import dspy

    from typedrag.lms.adapter import SchemaAdapter
    from typedrag.lms.models import cache_dir
    from typedrag.lms.replies import replies_beside
    from typedrag.optimizers.revelator import open_local_lm

    lm = open_local_lm(model)
    with replies_beside(cache_dir() / "revelator-replies.sqlite"), dspy.context(lm=lm, adapter=SchemaAdapter()):
        yield


def _program(name: str, options: dict[str, Any]) -> HANRAG:
    """The program that the roles belong to; it is never asked to retrieve.

    Raises:
        InputError: If it is not hanrag.
    """
    from typedrag.experiments.loading import program_source
    from typedrag.programs import HANRAG
    from typedrag.retrieval import NoReranker

    class NothingToSearch:
        def search(self, queries: Any, k: int) -> Any:
            raise NotImplementedError

    source = program_source(name)
    program = source.build(NothingToSearch(), NoReranker(), source.options(as_published=False, overrides=options))
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
        for right, given, count in mistakes[:_SHOWN_MISTAKES]:
            console.print(f"{score.role}: {right} taken for {given}: {count}", markup=False)
