"""`typedrag index`: build, add to, describe, search and serve an index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import assignments, chosen, index_option
from typedrag.cli.served import listen, listening

if TYPE_CHECKING:
    from typedrag.retrieval.index.building import Built


@click.group(name="index")
def command() -> None:
    """Build an index of documents, and search it."""


@command.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path), metavar="SOURCE…")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the index.")
@click.option("--fields", default="", help="Fields of JSONL or TSV rows, such as text=body,id=docno.")
@click.option("--k1", type=float, default=0.9, show_default=True, help="BM25's term frequency saturation.")
@click.option("--b", type=float, default=0.4, show_default=True, help="BM25's length normalisation.")
@click.option("--language", help="Of the passages, such as en, de or th; default: as most of the first ones are.")
@click.option(
    "--dense",
    metavar="MODEL",
    help="Also embed the passages with this sentence-transformers model: all-minilm-l6-v2, a folder or a name of the "
    "hub. Without SOURCE: those that the index in --out holds.",
)
@click.option("--query-prompt", help="Put before queries; default: as the model says, else E5's for E5.")
@click.option("--passage-prompt", help="The same for passages.")
@click.option("--bm25/--no-bm25", default=True, help="Whether it has a BM25 part; by default it has.")
@click.option("--force", is_flag=True, help="Replace an index that is there, once the new one is made.")
@click.option("--resume", is_flag=True, help="Continue a build that was killed.")
@click.option("--skip-bad", is_flag=True, help="Leave out files and rows that cannot be used, and name each.")
def build(
    sources: tuple[Path, ...],
    out: Path,
    fields: str,
    dense: str | None,
    query_prompt: str | None,
    passage_prompt: str | None,
    **options: Any,
) -> None:
    """Index files and folders.

    .jsonl and .tsv files (also .gz) hold a passage a row; .txt, .md, .html, .pdf, .docx, .pptx and
    .epub files are split into passages of about 100 words. Links that lead out of a folder are not
    followed.
    """
    if not sources and not dense:
        raise click.UsageError("Missing argument 'SOURCE…'.")
    from typedrag.cli.progress import counting
    from typedrag.retrieval import Encoder, FieldMap, build_parts

    mapped = FieldMap.parse(fields)
    encoder = Encoder(dense, query_prompt=query_prompt, passage_prompt=passage_prompt) if dense else None
    _say_built(build_parts(sources, out, counting, fields=mapped, encoder=encoder, **options), out)


@command.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE…")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the index.")
@click.option("--fields", default="", help="Fields of JSONL or TSV rows, such as text=body,id=docno.")
@click.option("--resume", is_flag=True, help="Continue an addition that was killed.")
@click.option("--skip-bad", is_flag=True, help="Leave out files and rows that cannot be used, and name each.")
@click.option("--force", is_flag=True, help="Give up an addition that was killed, and begin anew.")
def append(sources: tuple[Path, ...], out: Path, fields: str, **options: bool) -> None:
    """Add files and folders to an index, and to its dense part if it has one.

    It answers as one that was built from all of them, and as before until all are added.
    """
    from typedrag.cli.progress import counting
    from typedrag.retrieval import FieldMap, append_parts

    _say_built(append_parts(sources, out, counting, fields=FieldMap.parse(fields), **options), out)


@command.command()
@click.argument("index", type=click.Path(path_type=Path))
def info(index: Path) -> None:
    """Print the manifest of INDEX as JSON; that of its dense part is its field `dense`."""
    from typedrag.retrieval import has_dense, read_dense_manifest, read_manifest
    from typedrag.retrieval.opening import has_bm25

    dense = read_dense_manifest(index) if has_dense(index) else None
    facts = read_manifest(index).model_dump(mode="json") if has_bm25(index) or not dense else {}
    if dense:
        facts["dense"] = dense.model_dump(mode="json")
    click.echo(json.dumps(facts, ensure_ascii=False, indent=1))


@command.command()
@click.argument("index", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("-k", "--top-k", type=click.IntRange(1), default=5, show_default=True, help="How many passages.")
@click.option("--retriever", default="bm25", show_default=True, help="bm25, dense, hybrid, hybrid:WEIGHT or auto.")
@click.option("--k1", type=float, help="BM25's k1 instead of the manifest's.")
@click.option("--b", type=float, help="BM25's b instead of the manifest's.")
@click.option("--json", "as_json", is_flag=True, help="As JSON lines.")
def search(
    index: Path, query: str, top_k: int, retriever: str, k1: float | None, b: float | None, as_json: bool
) -> None:
    """Print the passages that INDEX holds for QUERY, best first."""
    from dataclasses import asdict

    from typedrag.retrieval import BM25Setting, open_retriever

    settings: dict[BM25Setting, float | None] = {"k1": k1, "b": b}
    opened = open_retriever(retriever, index, {name: v for name, v in settings.items() if v is not None})
    [passages] = opened.search([query], top_k)
    for passage in passages:
        if as_json:
            click.echo(json.dumps(asdict(passage), ensure_ascii=False))
        else:
            click.echo(f"{passage.score:7.3f}  {passage.id}  {passage.title}\n         {passage.text}\n")
    if not passages:
        click.echo("no passage found", err=True)


@command.command()
@index_option
@click.option("--retriever", default="bm25", show_default=True, help="bm25, dense, hybrid, hybrid:WEIGHT or auto.")
@assignments("--limit", "limits", help="A limit of the server, such as queue=512; see docs/index-server.md.")
@listening(8010)
def serve(
    index: Path | None, retriever: str, limits: dict[str, Any], keys: Path | None, no_keys: bool, **where: Any
) -> None:
    """Let programs on other machines search an index over HTTP, until it is stopped.

    They name it by --retriever http://HOST:PORT, and need neither the index nor Java. Without --keys
    it listens on this machine alone.
    """
    from typedrag.retrieval.default_index import default_index
    from typedrag.serving.search.run import open_index
    from typedrag.serving.search.service import IndexSettings
    from typedrag.serving.settings import read_settings

    settings = read_settings({**limits, **chosen(keys=keys, no_keys=no_keys or None)}, IndexSettings)
    folder = index or default_index()
    listen(f"{folder.name} by {retriever}", partial(open_index, retriever, folder, settings), settings, **where)


def _say_built(built: Sequence[Built], out: Path) -> None:
    from typedrag.retrieval import DenseManifest

    for manifest in built:
        rate = manifest.passages / max(manifest.seconds, 1e-3)
        if isinstance(manifest, DenseManifest):
            how = f" embedded with {manifest.encoder.model}"
        else:
            how = f" in language {manifest.language}"
        seconds = f"{manifest.seconds:.1f} s"
        say(f"{manifest.passages:,} passages{how} in {seconds} ({rate:,.0f} a second): {out}")
