"""`typedrag index`: build, add to, describe, search and serve an index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import assignments, chosen, index_option, listed
from typedrag.cli.served import listen, listening
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from typedrag.retrieval import DenseManifest, Manifest
    from typedrag.retrieval.milvus import MilvusManifest


@click.group(name="index")
def command() -> None:
    """Build and search an index of documents."""


@command.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path), metavar="SOURCE…")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the index.")
@click.option(
    "--to",
    metavar="ADDRESS",
    help="In the place of a folder, a collection of Milvus: milvus:http://HOST:PORT/COLLECTION.",
)
@click.option("--fields", default="", help="Fields of JSONL or TSV rows, such as text=body,id=docno.")
@click.option(
    "--contexts",
    is_flag=True,
    help="SOURCEs are files of questions, of MuSiQue, HotpotQA or 2WikiMultihopQA: index their contexts, each once.",
)
@listed("--metadata", help="With --to: a further field of rows, which filters can name.")
@click.option("--k1", type=float, help="BM25's term frequency saturation; default: 0.9.")
@click.option("--b", type=float, help="BM25's length normalisation; default: 0.4.")
@click.option("--language", help="Language of the passages, such as en, de or th; default: detected.")
@click.option(
    "--dense",
    metavar="MODEL",
    help="Also embed the passages with this sentence-transformers model: all-minilm-l6-v2, a folder or a name of the "
    "hub; or by an API: api:text-embedding-ada-002. Without SOURCE: embed the passages of the index in --out.",
)
@click.option("--query-prompt", help="Prefix of queries; default: the model's own, or that of E5 models.")
@click.option("--passage-prompt", help="Prefix of passages; default: likewise.")
@click.option(
    "--approximate",
    metavar="FACTORY",
    help="Search the dense part approximately, for more passages than memory holds: auto, by their number, or a "
    "factory string of FAISS such as IVF4096,PQ48 or HNSW32. Default: all are compared.",
)
@click.option("--bm25/--no-bm25", default=True, help="Whether the index has a BM25 part; default: yes.")
@click.option("--force", is_flag=True, help="Replace an existing index, once the new one is built.")
@click.option("--resume", is_flag=True, help="Continue an interrupted build.")
@click.option("--skip-bad", is_flag=True, help="Leave out unusable files and rows, and name each.")
def build(
    sources: tuple[Path, ...],
    out: Path | None,
    to: str | None,
    fields: str,
    metadata: str | None,
    approximate: str | None,
    dense: str | None,
    query_prompt: str | None,
    passage_prompt: str | None,
    k1: float | None,
    b: float | None,
    **options: Any,
) -> None:
    """Index files and folders.

    .jsonl and .tsv files (also .gz) have a passage in each row, or with --contexts a question with its passages; .txt,
    .md, .html, .pdf, .docx, .pptx and .epub files are split into passages of about 100 words. Links that lead out of a
    folder are not followed.
    """
    if not sources and (to or not dense):
        raise click.UsageError("Missing argument 'SOURCE…'.")
    if (out is None) == (to is None):
        raise click.UsageError("Name one: --out FOLDER or --to ADDRESS.")
    if approximate and to:
        raise click.UsageError("--approximate is of --out: Milvus has an index of its own.")
    if options["contexts"] and (fields or metadata):
        raise click.UsageError("--contexts knows the fields of its files: leave --fields and --metadata out.")
    if metadata and not to:
        raise click.UsageError("--metadata is of --to: an index in a folder has no filters.")
    from typedrag.cli.progress import counting
    from typedrag.retrieval import FieldMap, build_index, embed_index, open_encoder
    from typedrag.retrieval.milvus import MilvusIndex, build_milvus

    options |= chosen(k1=k1, b=b)
    mapped = FieldMap.parse(fields)
    there = MilvusIndex(to) if to else None
    encoder = open_encoder(dense, query_prompt=query_prompt, passage_prompt=passage_prompt) if dense else None
    names = [str(source) for source in sources]
    if there:
        metadata_fields = tuple(filter(None, (metadata or "").split(",")))
        manifest = build_milvus(
            sources, there, counting, fields=mapped, metadata=metadata_fields, encoder=encoder, **options
        )
        _say_built([manifest], there.place)
    elif out and sources:
        from typedrag.retrieval.index.passages import add_places
        from typedrag.retrieval.index.sources import source_reader

        read = source_reader(sources, mapped, contexts=options.pop("contexts"), skip_bad=options.pop("skip_bad"))
        with add_places(read):
            passages = (placed.passage for placed in read())
            built = build_index(
                passages, out, sources=names, encoder=encoder, approximate=approximate, stage=counting, **options
            )
        _say_built(built, str(out))
    elif out and encoder:
        if k1 is not None or b is not None or options["language"] or not options["bm25"]:
            raise InputError(
                "the passages of an index are embedded, and settings of its BM25 part are given", "Leave them out"
            )
        built = embed_index(out, encoder, approximate=approximate, force=options["force"], stage=counting)
        _say_built(built[1:], str(out))


@command.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="SOURCE…")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the index.")
@click.option("--fields", default="", help="Fields of JSONL or TSV rows, such as text=body,id=docno.")
@click.option("--resume", is_flag=True, help="Continue an interrupted addition.")
@click.option("--skip-bad", is_flag=True, help="Leave out unusable files and rows, and name each.")
@click.option("--force", is_flag=True, help="Discard an interrupted addition, and begin anew.")
def append(sources: tuple[Path, ...], out: Path, fields: str, skip_bad: bool, **options: bool) -> None:
    """Add files and folders to an index, and to its dense part if it has one.

    Until all are added, it answers as before; then as if it had been built from all of them.
    """
    from typedrag.cli.progress import counting
    from typedrag.retrieval import FieldMap, append_index
    from typedrag.retrieval.index.building import read_parts
    from typedrag.retrieval.index.generations import open_current
    from typedrag.retrieval.index.passages import add_places
    from typedrag.retrieval.index.sources import source_reader

    [held, *_] = [part for part in open_current(out, read_parts) if part]
    read = source_reader(sources, FieldMap.parse(fields), skip_bad=skip_bad, indexed=held.sources)
    with add_places(read):
        passages = (placed.passage for placed in read())
        built = append_index(passages, out, sources=[str(s) for s in sources], stage=counting, **options)
    _say_built(built, str(out))


@command.command()
@click.argument("index")
def info(index: str) -> None:
    """Print the manifest of INDEX, a folder or a collection of Milvus, as JSON.

    That of a folder's dense part is the field `dense`.
    """
    if index.startswith("milvus:"):
        from typedrag.retrieval.milvus import MilvusIndex

        click.echo(MilvusIndex(index).manifest().model_dump_json(indent=1))
    else:
        click.echo(json.dumps(_facts(Path(index)), ensure_ascii=False, indent=1))


def _facts(index: Path) -> dict[str, Any]:
    from typedrag.retrieval.index.building import read_parts
    from typedrag.retrieval.index.generations import open_current

    bm25, dense = open_current(index, read_parts)
    facts = bm25.model_dump(mode="json") if bm25 else {}
    return {**facts, "dense": dense.model_dump(mode="json")} if dense else facts


@command.command()
@click.argument("index")
@click.argument("query")
@click.option("-k", "--top-k", type=click.IntRange(1), default=5, show_default=True, help="Number of passages.")
@click.option("--retriever", help="Of a folder: bm25, dense, hybrid, hybrid:WEIGHT or auto. Default: bm25.")
@click.option("--k1", type=float, help="BM25's k1, instead of the manifest's.")
@click.option("--b", type=float, help="BM25's b, instead of the manifest's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def search(
    index: str, query: str, top_k: int, retriever: str | None, k1: float | None, b: float | None, as_json: bool
) -> None:
    """Print the passages of INDEX for QUERY, best first.

    INDEX is a folder, or an address, which says itself how it is searched.
    """
    from dataclasses import asdict

    from typedrag.retrieval import BM25Setting, open_retriever, retriever_parts
    from typedrag.retrieval.opening import brings_index

    settings: dict[BM25Setting, float | None] = {"k1": k1, "b": b}
    values = {name: value for name, value in settings.items() if value is not None}
    if brings_index(index):
        if retriever is not None:
            hint = f"Leave it out; an address of Milvus can end with ?search={retriever}"
            raise InputError("an address says itself how it is searched, and --retriever is given", hint)
        opened = open_retriever(index, None, values)
    else:
        opened = open_retriever(retriever or "bm25", index, values)
    if values and retriever_parts(opened).sparse is None:
        raise InputError("--k1 and --b are of BM25, and the dense part is searched alone", "Leave them out")
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
    from typedrag.retrieval.opening import default_index
    from typedrag.serving.index_server import IndexSettings, open_index
    from typedrag.serving.settings import read_settings

    settings = read_settings({**limits, **chosen(keys=keys, no_keys=no_keys or None)}, IndexSettings)
    folder = index or default_index()
    listen(f"{folder.name} by {retriever}", partial(open_index, retriever, folder, settings), settings, **where)


def _say_built(built: Sequence[Manifest | DenseManifest | MilvusManifest | None], place: str) -> None:
    from typedrag.retrieval import DenseManifest, Manifest

    for manifest in [part for part in built if part]:
        rate = manifest.passages / max(manifest.seconds, 1e-3)
        how = "" if isinstance(manifest, DenseManifest) else f" in language {manifest.language}"
        encoder = None if isinstance(manifest, Manifest) else manifest.encoder
        how += f" embedded with {encoder.model}" if encoder else ""
        seconds = f"{manifest.seconds:.1f} s"
        say(f"{manifest.passages:,} passages{how} in {seconds} ({rate:,.0f} a second): {place}")
