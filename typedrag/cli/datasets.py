"""`typedrag datasets`: list, show, check, fetch and build the datasets that programs are measured on."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import FilePath, PositiveInt, ValidationError

from typedrag.cli import options
from typedrag.cli.terminal import ExitCode, RunsProgress, claim_file, echo, print_json, say
from typedrag.core.errors import InputError
from typedrag.files.text_files import write_json_lines
from typedrag.lms.cost import track_calls
from typedrag.runs import Stages

if TYPE_CHECKING:
    import dspy

    from typedrag.builders.builder import Builder
    from typedrag.datasets import Dataset

_SHOWN_SKIPPED = 5
_SHOWN_FAULTS = 100
_SHOWN_CHARACTERS = 200
_KEPT = """

Replies of the LM are stored in --replies as they come: after an interruption, the same command asks only for the
missing ones."""
Subset = Annotated[str | None, options.Joined(), "A subset; default: all."]


@click.group(name="datasets")
def command() -> None:
    """List, show, check, fetch and build the datasets that programs are measured on."""


@options.command(group=command, name="list")
def list_datasets(*, as_json: options.Json = False) -> None:
    """List all datasets, with their licences and homes."""
    from typedrag.datasets import sources

    for s in sources():
        if as_json:
            print_json({"name": s.name, "about": s.about, "licence": s.licence, "home": s.home})
        else:
            echo(f"{s.name:22} {s.about}\n{'':22} {s.licence}{'; ' + s.home if s.home else ''}")


@options.command(group=command)
def show(
    name: str,
    *,
    path: Annotated[Path | None, "A local copy: file or folder."] = None,
    subset: Subset = None,
    fields: options.FieldMapping,
    split: Annotated[str | None, "Instead list the questions of train, validation, test or all."] = None,
    as_json: options.Json = False,
) -> None:
    """Print the numbers of questions of NAME by kind, its fingerprint and its first question."""
    from typedrag.datasets import SPLITS, plain, source_named

    home = source_named(name).home
    dataset = _open_dataset(name, path, subset, fields)
    if split:
        for example in dataset.split(split):
            if as_json:
                print_json(example.toDict(), default=plain)
            else:
                echo(f"{example.id}  {example.question}")
        return None

    def count(field: str) -> dict[str, int]:
        return dict(sorted(Counter(str(e[field]) for e in dataset.examples if e.get(field)).items()))

    facts = {
        "home": home,
        "name": dataset.name,
        "licence": dataset.licence,
        "source": dataset.source,
        "fingerprint": dataset.fingerprint,
        "questions": len(dataset.examples),
        "splits": {split: len(dataset.split(split)) for split in SPLITS},
        "subsets": count("subset"),
        "question_types": count("question_type"),
        "skipped": list(dataset.skipped),
        "first": dataset.examples[0].toDict() if dataset.examples else {},
    }
    if as_json:
        return print_json(facts, default=plain)
    for fact in ("name", "licence", "home", "source", "fingerprint", "questions"):
        echo(f"{fact:15} {facts[fact]}")
    for fact in ("splits", "subsets", "question_types"):
        if facts[fact]:
            echo(f"{fact:15} {', '.join(f'{key} {n:,}' for key, n in facts[fact].items())}")
    echo(f"{'skipped':15} {len(dataset.skipped)}")
    for line in dataset.skipped[:_SHOWN_SKIPPED]:
        echo(f"  {line}")
    if (more := len(dataset.skipped) - _SHOWN_SKIPPED) > 0:
        echo(f"  and {more:,} more: --json lists all")
    echo("first question")
    for field, value in facts["first"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain)
        text = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        echo(f"  {field:17} {text}")
    return None


@options.command(group=command)
def check(file: FilePath, *, fields: options.FieldMapping, as_json: options.Json = False) -> None:
    """Print all faults of FILE, a dataset of your own, and what can be measured with it.

    Exit status 1 if it has a fault.
    """
    import dspy

    from typedrag.core.errors import NotMeasurable
    from typedrag.datasets import Row, check_file
    from typedrag.metrics import Metric, build_metric, metric_names

    dataset, faults = check_file(file, fields)
    examples = dataset.examples

    def metric_named(name: str) -> Metric:
        try:
            return build_metric(name)
        except InputError:
            return build_metric(name, dspy.LM("none/asked"))

    def lacks(metric: Metric, example: dspy.Example) -> str:
        try:
            metric.require(example)
        except NotMeasurable as lack:
            return str(lack)
        return ""

    reasons = {name: [lacks(metric_named(name), e) for e in examples] for name in metric_names()}
    fields_of = {name: n for name in Row.model_fields if (n := sum(bool(e.get(name)) for e in examples))}
    measurable = {name: n for name, lacking in reasons.items() if (n := lacking.count(""))}
    missing = {name: lacking[0] for name, lacking in reasons.items() if lacking and name not in measurable}
    if as_json:
        facts = {"faults": faults, "questions": len(examples), "fields": fields_of}
        print_json({**facts, "measurable": measurable, "not_measurable": missing})
    else:
        for fault in faults[:_SHOWN_FAULTS]:
            echo(fault)
        if (more := len(faults) - _SHOWN_FAULTS) > 0:
            echo(f"and {more:,} more faults: --json lists all")
        echo(f"{len(examples):,} usable questions, {len(faults):,} faults")
        for title, counts in (
            ("questions with each field", fields_of),
            ("questions that each metric can measure", measurable),
        ):
            echo(f"\n{title}")
            for name, number in counts.items():
                echo(f"  {name:15} {number:,}")
        echo("\nnot measurable")
        for name, reason in missing.items():
            echo(f"  {name:15} {reason}")
    if faults:
        sys.exit(ExitCode.FAILED)


@options.command(group=command)
def schema() -> None:
    """Print the JSON schema of a row of a dataset of your own."""
    from typedrag.datasets import Row

    echo(json.dumps(Row.model_json_schema(), indent=2, ensure_ascii=False))


@options.command(group=command)
def fetch(name: str, *, subset: Subset = None) -> None:
    """Download NAME from its home, check it, and print its folder."""
    from typedrag.datasets import cache_folder, source_named

    home = source_named(name).home
    if not home.startswith("https:"):
        raise InputError(f"dataset '{name}' is not fetched from anywhere", f"Look at it: typedrag datasets show {name}")
    say(f"fetching {name} from {home} …")
    dataset = _open_dataset(name, None, subset, {})
    say(f"{len(dataset.examples):,} questions, {len(dataset.skipped):,} rows left out")
    echo(str(cache_folder()))


def _open_dataset(name: str, path: Path | None, subset: str | None, fields: dict[str, str]) -> Dataset:
    from typedrag.datasets import load_dataset

    loading = {"subset": subset, "fields": fields}
    return load_dataset(name, path, **{option: value for option, value in loading.items() if value})


@options.command(group=command)
def from_traces(file: FilePath, *, out: Annotated[Path, "JSONL file, for --dataset file --path."]) -> None:
    """Build a dataset from users' feedback in FILE, kept by `typedrag serve --feedback FILE`.

    Corrections become the best references of a question, answers rated good the next, answers rated bad the worst.
    What users said of a question's type becomes its question_type. Questions that have bad answers only, and no type,
    are left out.
    """
    from typedrag.datasets.feedback import FeedbackFile, rows_from_feedback

    entries = list(FeedbackFile(file))
    rows = rows_from_feedback(entries)
    write_json_lines(claim_file(out), rows)
    say(f"{len(rows)} questions of {len({answer.question for answer, _ in entries})} that something was said of: {out}")


class _Builders(click.Group):
    """The builders by name; the options of each are its fields."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from typedrag.builders.settings import SETTINGS

        return list(SETTINGS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from typedrag.builders.settings import SETTINGS
        from typedrag.experiments.config import SpendingCaps

        builder = SETTINGS.get(cmd_name)
        if builder is None:
            return None
        fields = options.field_options(builder, *builder.model_fields, under="settings", whole=True)
        caps = options.field_options(SpendingCaps, *options.CAPS, under="caps") if builder.asks_lm else []
        without = [] if builder.asks_lm else ["lm", "api_base", "threads", "replies"]
        command = options.command(
            fields, caps, name=cmd_name, timeout=builder.asks_lm, old={"--store": "--replies"},
            without=[*without, *builder.model_fields],
        )(_build)  # fmt: skip
        command.help = cleandoc(builder.__doc__ or "") + _KEPT * builder.asks_lm
        options.read_environment(command, f"TYPEDRAG_DATASETS_BUILD_{options.variable(cmd_name)}")
        return command


@command.command(cls=_Builders)
def build() -> None:
    """Build a dataset from files, with an LM if needed."""


def _build(
    ctx: click.Context,
    *,
    out: Annotated[Path, "The JSONL file to write."],
    lm: Annotated[str | None, "LM that writes: embedded[:NAME], vllm:MODEL or a DSPy name."] = None,
    api_base: Annotated[str | None, "Address of the OpenAI-compatible server of LMs without @URL."] = None,
    threads: Annotated[PositiveInt, "LM calls at once."] = 16,
    replies: Annotated[Path | None, "Store of LM replies; default: beside --out."] = None,
    as_json: Annotated[bool, "Print the counts as JSON.", "--json"] = False,
    values: dict[str, Any],
) -> None:
    from typedrag.builders.catalogue import BUILDERS
    from typedrag.experiments.config import SpendingCaps
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.lms.lm import open_lm
    from typedrag.lms.replies import use_reply_store

    claim_file(out)
    settings = {name: value for name, value in values.get("settings", {}).items() if value not in (None, (), {})}
    try:
        builder: Builder = BUILDERS[ctx.info_name or ""](**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}", "See --help") from None
    limit_calls_in_flight(threads)
    store = replies or out.with_name(f"{out.name}.sqlite")
    with ExitStack() as stack:

        def opened(named: str | None) -> dspy.LM:
            if not used:
                stack.enter_context(use_reply_store(store))
                used.append(store)
            return track_calls(open_lm(named or lm, api_base=api_base, cache=True))

        used: list[Path] = []
        shown = stack.enter_context(RunsProgress(lambda: bool(used), "run the same command again", label="{}"))
        stages = Stages(threads, stop=SpendingCaps(**values.get("caps", {})).stopper(), listener=shown.show)
        built = builder.build(stages, opened)
    left_out = +built.left_out
    for reason, number in left_out.most_common():
        say(f"left out: {number:,} ({reason})")
    if not built.rows:
        raise InputError("nothing was made", "Look at what was left out and why")
    write_json_lines(out, built.rows)
    counts = builder.counts(built)
    if as_json:
        return print_json({builder.of: counts, "left out": dict(left_out)})
    for name, number in counts.items():
        say(f"{name}: {number:,}")
    say(f"{len(built.rows):,} rows")
    return echo(str(out))
