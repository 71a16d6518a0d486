"""`typedrag index`: build, describe and search an index."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group(name="index")
def command() -> None:
    """Build an index of documents, and search it."""


@command.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE…")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the index.")
@click.option("--fields", default="", help="Fields of JSONL or TSV rows, such as text=body,id=docno.")
@click.option("--k1", type=float, default=0.9, show_default=True, help="BM25's term frequency saturation.")
@click.option("--b", type=float, default=0.4, show_default=True, help="BM25's length normalisation.")
@click.option("--force", is_flag=True, help="Replace an index that is there.")
@click.option("--resume", is_flag=True, help="Continue a build that was killed.")
def build(sources: tuple[Path, ...], out: Path, fields: str, k1: float, b: float, force: bool, resume: bool) -> None:
    """Index files and folders.

    .jsonl and .tsv files (also .gz) hold a passage a row; .txt, .md, .html and .pdf files, alone or
    in folders, are split into passages of about 100 words.
    """
    from typedrag.cli.progress import counting
    from typedrag.retrieval import FieldMap, build_index, read_passages

    passages = read_passages(sources, FieldMap.parse(fields))
    with counting("passages") as on_progress:
        manifest = build_index(
            passages,
            out,
            sources=[str(s) for s in sources],
            k1=k1,
            b=b,
            force=force,
            resume=resume,
            on_progress=on_progress,
        )
    rate = manifest.passages / max(manifest.seconds, 1e-3)
    click.echo(f"{manifest.passages:,} passages in {manifest.seconds:.1f} s ({rate:,.0f} a second): {out}", err=True)


@command.command()
@click.argument("index", type=click.Path(path_type=Path))
def info(index: Path) -> None:
    """Print the manifest of INDEX as JSON."""
    from typedrag.retrieval import read_manifest

    click.echo(read_manifest(index).model_dump_json(indent=1))


@command.command()
@click.argument("index", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("-k", "--top-k", type=click.IntRange(1), default=5, show_default=True, help="How many passages.")
@click.option("--k1", type=float, help="BM25's k1 instead of the manifest's.")
@click.option("--b", type=float, help="BM25's b instead of the manifest's.")
@click.option("--json", "as_json", is_flag=True, help="As JSON lines.")
def search(index: Path, query: str, top_k: int, k1: float | None, b: float | None, as_json: bool) -> None:
    """Print the passages that INDEX holds for QUERY, best first."""
    from dataclasses import asdict

    from typedrag.retrieval import BM25Retriever

    [passages] = BM25Retriever(index, k1=k1, b=b).search([query], top_k)
    for passage in passages:
        if as_json:
            click.echo(json.dumps(asdict(passage), ensure_ascii=False))
        else:
            click.echo(f"{passage.score:7.3f}  {passage.id}  {passage.title}\n         {passage.text}\n")
    if not passages:
        click.echo("no passage found", err=True)
