"""`typedrag datasets`: list, show, fetch and build the datasets that programs are measured on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.build import Builders
from typedrag.cli.options import field_option, listed, together

if TYPE_CHECKING:
    from typedrag.datasets import Dataset

_SHOWN_SKIPPED = 5
_SHOWN_CHARACTERS = 200


dataset_options = together(
    click.option("--path", type=click.Path(path_type=Path), help="A local copy: file or folder."),
    listed("--subset", help="A subset; default: all."),
    field_option(),
)
"""The options of where a dataset is read from, and which part of it."""


def open_dataset(name: str, path: Path | None, subset: str | None, fields: dict[str, str]) -> Dataset:
    """The dataset of the values of `dataset_options`."""
    from typedrag.datasets import load_dataset

    options = {"subset": subset, "fields": fields}
    return load_dataset(name, path, **{option: value for option, value in options.items() if value})


@click.group(name="datasets")
def command() -> None:
    """List, show, fetch and build the datasets that programs are measured on."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_datasets(as_json: bool) -> None:
    """List all datasets, with their licences and homes."""
    from typedrag.datasets import sources

    rows = [{"name": s.name, "about": s.about, "licence": s.licence, "home": s.home} for s in sources()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        click.echo(f"{row['name']:22} {row['about']}")
        click.echo(f"{'':22} {row['licence']}{'; ' + row['home'] if row['home'] else ''}")


@command.command()
@click.argument("name")
@dataset_options
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show(name: str, path: Path | None, subset: str | None, fields: dict[str, str], as_json: bool) -> None:
    """Print the numbers of questions of NAME by kind, its fingerprint and its first question."""
    from typedrag.datasets import plain, source_named

    home = source_named(name).home
    facts = {"home": home, **_facts(open_dataset(name, path, subset, fields))}
    if as_json:
        click.echo(json.dumps(facts, indent=1, ensure_ascii=False, default=plain))
    else:
        _print(facts)


@command.command()
@click.argument("name")
@listed("--subset", help="A subset; default: all.")
def fetch(name: str, subset: str | None) -> None:
    """Download NAME from its home, check it, and print its folder."""
    from typedrag.core.errors import InputError
    from typedrag.datasets import cache_folder, source_named

    home = source_named(name).home
    if not home.startswith("https:"):
        raise InputError(f"dataset '{name}' is not fetched from anywhere", f"Look at it: typedrag datasets show {name}")
    click.echo(f"fetching {name} from {home} …", err=True)
    dataset = open_dataset(name, None, subset, {})
    click.echo(f"{len(dataset.examples):,} questions, {len(dataset.skipped):,} rows left out", err=True)
    click.echo(str(cache_folder()))


@command.command("from-traces")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSONL file, for --dataset file --path.")
def from_traces(file: Path, out: Path) -> None:
    """Build a dataset from users' feedback in FILE, kept by `typedrag serve --limit feedback=FILE`.

    Corrections become the best references of a question, answers rated good the next, answers rated bad the worst.
    What users said of a question's type becomes its question_type. Questions that have bad answers only, and no type,
    are left out.
    """
    from typedrag.cli.opening import claim_file, say
    from typedrag.datasets.feedback import FeedbackFile, rows_from_feedback
    from typedrag.files.text_files import write_json_lines

    entries = list(FeedbackFile(file))
    rows = rows_from_feedback(entries)
    write_json_lines(claim_file(out), rows)
    say(f"{len(rows)} questions of {len({answer.question for answer, _ in entries})} that something was said of: {out}")


@command.command(cls=Builders)
def build() -> None:
    """Build a dataset from files, with an LM if needed."""


def _facts(dataset: Dataset) -> dict[str, Any]:
    from typedrag.datasets import SPLITS

    def count(field: str) -> dict[str, int]:
        return dict(sorted(Counter(str(e[field]) for e in dataset.examples if e.get(field)).items()))

    return {
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


def _print(facts: dict[str, Any]) -> None:
    for name in ("name", "licence", "home", "source", "fingerprint", "questions"):
        click.echo(f"{name:15} {facts[name]}")
    for name in ("splits", "subsets", "question_types"):
        if facts[name]:
            click.echo(f"{name:15} {', '.join(f'{key} {n:,}' for key, n in facts[name].items())}")
    skipped = facts["skipped"]
    click.echo(f"{'skipped':15} {len(skipped)}")
    for line in skipped[:_SHOWN_SKIPPED]:
        click.echo(f"  {line}")
    if len(skipped) > _SHOWN_SKIPPED:
        click.echo(f"  and {len(skipped) - _SHOWN_SKIPPED:,} more: --json lists all")
    click.echo("first question")
    for name, value in facts["first"].items():
        click.echo(f"  {name:17} {_short(value)}")


def _short(value: Any) -> str:
    from typedrag.datasets import plain

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
