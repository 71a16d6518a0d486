"""`typedrag models`: list and fetch small models."""

from __future__ import annotations

import json

import click


@click.group(name="models")
def command() -> None:
    """List and fetch small models."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_models(as_json: bool) -> None:
    """List all models, with size, licence, and whether they are on this machine."""
    from typedrag.lms.models import MODELS

    rows = [
        {
            "name": m.name,
            "megabytes": m.megabytes,
            "licence": m.licence,
            "present": m.present,
            "file": m.file,
            "sha256": m.sha256,
            "hub": m.hub or None,
            "packages": list(m.packages),
            "purpose": m.purpose,
        }
        for m in MODELS.values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        here = "here" if row["present"] else "not fetched"
        click.echo(f"{row['name']:20} {row['megabytes']:>5} MB  {row['licence']:11} {here:12} {row['purpose']}")


@command.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Download the model NAME and print its path."""
    from typedrag.lms.models import fetch as fetch_model
    from typedrag.lms.models import find_model

    model = find_model(name)
    if not model.present:
        click.echo(f"fetching {name} ({model.megabytes} MB, {model.licence}) …", err=True)
    click.echo(str(fetch_model(name)))
