"""`typedrag research revelator`: train and measure HANRAG's revelator as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import DirectoryPath, FilePath, PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import RunsProgress, counting, draw_table, echo, print_json, say, wide_console
from typedrag.core.errors import InputError, names_hint
from typedrag.lms.models import cache_dir
from typedrag.optimizers.revelator_settings import TrainingSettings

if TYPE_CHECKING:
    from typedrag.programs import HANRAG

_SHOWN_MISTAKES = 5
ProgramName = Annotated[str, "--program", "hanrag, or a folder it was compiled to."]
ProgramOptions = Annotated[dict[str, Any], "-o", "--option", "Set any option of --program; repeatable."]


@click.group(name="revelator")
def command() -> None:
    """Train and measure the revelator of program hanrag."""


@options.command(
    options.field_options(
        TrainingSettings, "epochs", "max_steps", "learning_rate", "batch_size", "accumulate", "lora_rank", "max_tokens",
        "gradient_checkpointing", "merge", "seed",
    ),
    group=command,
)  # fmt: skip
def train(
    data: FilePath,
    *,
    base: Annotated[str, "A causal LM: a folder, or its name on the Hugging Face hub."],
    out: Annotated[Path, "Folder of the training."],
    resume: Annotated[bool, "Continue the training in --out from its last checkpoint."] = False,
    others: Annotated[
        tuple[str, ...], options.Metavar("NAME=VALUE"), "--set",
        "Other settings of the training: warmup, lora_alpha, lora_dropout, checkpoint_every. Repeatable.",
    ] = (),
    program: ProgramName = "hanrag",
    program_options: ProgramOptions,
    as_json: options.Json = False,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Fine-tune a model with LoRA on DATA, the output of `typedrag datasets build revelator`.

    One model learns all roles, with the prompts of --program. vLLM can serve --out/model, or
    --out/adapter as a LoRA module of the base.
    """
    from typedrag.datasets import load_dataset
    from typedrag.experiments.config_file import read_into, with_settings
    from typedrag.optimizers.revelator import train_revelator

    flags = with_settings({}, others) | options.chosen(**values)
    settings = read_into(TrainingSettings, "research revelator train", None, flags)
    dataset = load_dataset("revelator", data)
    with counting("steps") as show:
        trained = train_revelator(
            base, dataset, _open_program(program, program_options), out, settings, resume=resume,
            on_step=lambda s: show(s.step, f"of {s.steps:,}, loss {s.loss:.3f}"),
        )  # fmt: skip
    if trained.left_out:
        say(f"left out: {trained.left_out:,} rows of more than {settings.max_tokens:,} tokens")
    losses = f"loss {trained.loss_before:.3f} before, {trained.loss_after:.3f} after {trained.steps:,} steps"
    say(f"{trained.rows:,} rows: {losses}")
    if as_json:
        print_json(trained.to_dict())
    else:
        echo(str(trained.folder))


@options.command(group=command, timeout=True, old={"--part": "--split"})
def evaluate(
    data: FilePath,
    *,
    lm: Annotated[str | None, "LM of the revelator: embedded[:NAME], vllm:MODEL or a DSPy name."] = None,
    api_base: Annotated[str | None, "Address of its OpenAI-compatible server."] = None,
    model: Annotated[
        DirectoryPath | None, "Instead: folder of a trained model or adapter, run in this process; slow."
    ] = None,
    roles: Annotated[tuple[str, ...], "--role", "router, decomposer, refiner, relevance, ending. Repeatable."] = (),
    split: Annotated[str, "Part of DATA: train, validation, test or all."] = "test",
    limit: Annotated[PositiveInt | None, "Maximum rows of a role; default: all."] = None,
    threads: Annotated[PositiveInt, "LM calls at once."] = 16,
    program: ProgramName = "hanrag",
    program_options: ProgramOptions,
    as_json: Annotated[bool, "Print JSON, a role a line, with all confusions.", "--json"] = False,
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
        raise InputError(f"no role is called '{unknown[0]}'", names_hint("Roles", unknown[0], RevelatorRole))
    if model and lm:
        raise InputError("both --model and --lm were given", "Give one of them")
    if model and api_base:
        raise InputError("--api-base is that of --lm, and --model runs in this process", "Leave out one of them")
    measured = tuple(RevelatorRole(role) for role in roles) or tuple(RevelatorRole)
    if model or lm:
        program_options = with_settings(program_options, ["hanrag.revelator_lm="])  # else each role asks its own LM
    dataset, hanrag = load_dataset("revelator", data), _open_program(program, program_options)
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
            dataset, hanrag, roles=measured, part=split, limit=limit, threads=threads, listener=shown.show
        )
    if as_json:
        return print_json(*map(asdict, scores))
    rows = []
    for score in scores:
        figures = (score.score, score.measures.get("macro_f1"), score.majority)
        value, *others = ["–" if figure is None else f"{figure:.3f}" for figure in figures]
        rows.append([score.role, str(score.n), str(score.failed), str(score.interval or value), *others])
    console = wide_console(80)
    draw_table(("role", "n", "failed", "score", "macro-F1", "most frequent"), rows, console=console)
    for score in scores:
        mistakes = score.confusion.mistakes() if score.confusion else []
        for right, wrong, count in mistakes[:_SHOWN_MISTAKES]:
            console.print(f"{score.role}: {right} taken for {wrong}: {count}", markup=False)
    return None


@contextmanager
def _in_this_process(model: Path) -> Iterator[None]:
    """Use the LM in a folder, and store its replies."""
    import dspy

    from typedrag.lms.adapter import SchemaAdapter
    from typedrag.lms.replies import use_reply_store
    from typedrag.optimizers.revelator import open_local_lm

    lm = open_local_lm(model)
    # what cannot be read is a model's reply too, and counts as wrong
    replies = use_reply_store(cache_dir() / "revelator-replies.sqlite", keep_unreadable=True)
    with replies, dspy.context(lm=lm, adapter=SchemaAdapter()):
        yield


def _open_program(name: str, options: dict[str, Any]) -> HANRAG:
    from typedrag.experiments.loading import program_source
    from typedrag.programs import HANRAG

    source = program_source(name)
    program = source.without_index(source.options(overrides=options))
    if not isinstance(program, HANRAG):
        raise InputError(f"program '{name}' has no revelator", "Name hanrag, or a folder that it was compiled to")
    return program
