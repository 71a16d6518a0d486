"""`typedrag index`: build, add to, describe, search and serve an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import PositiveInt

from typedrag.cli import options
from typedrag.cli import serve as serve_command
from typedrag.cli.terminal import counting, echo, print_json, say
from typedrag.core.errors import InputError
from typedrag.serving.settings import IndexSettings, read_settings

if TYPE_CHECKING:
    from typedrag.retrieval import DenseManifest, Manifest
    from typedrag.retrieval.milvus import MilvusManifest

Fields = Annotated[str, "Fields of JSONL or TSV rows, such as text=body,id=docno."]
SkipBad = Annotated[bool, "Leave out files and rows that cannot be read, and name each."]
ADDRESS = "milvus:"


@click.group(name="index")
def command() -> None:
    """Build and search an index of documents."""


@options.command(group=command, old={"--to": "--out"})
def build(
    sources: Annotated[tuple[Path, ...], options.Metavar("SOURCE…")] = (),
    *,
    out: Annotated[
        str, "Folder of the index, or a collection of Milvus in its place: milvus:http://HOST:PORT/COLLECTION."
    ],
    fields: Fields = "",
    contexts: Annotated[
        bool,
        "SOURCEs are files of questions, of MuSiQue, HotpotQA or 2WikiMultihopQA: index their contexts, each once.",
    ] = False,
    metadata: Annotated[str | None, options.Joined(), "With Milvus: a further field of rows, which filters can name."]
    = None,
    k1: Annotated[float | None, "BM25's term frequency saturation; default: 0.9."] = None,
    b: Annotated[float | None, "BM25's length normalisation; default: 0.4."] = None,
    language: Annotated[
        str | None, "Language of the passages, such as en, de or th; standard: words without stems. Default: detected."
    ] = None,
    dense: Annotated[
        str | None, options.Metavar("MODEL"),
        "Also embed the passages with this sentence-transformers model: all-minilm-l6-v2, a folder or a name of the "
        "hub; or by an API: api:text-embedding-ada-002. Without SOURCE: embed the passages of the index in --out.",
    ] = None,
    query_prompt: Annotated[str | None, "Prefix of queries; default: the model's own, or that of E5 models."] = None,
    passage_prompt: Annotated[str | None, "Prefix of passages; default: likewise."] = None,
    approximate: Annotated[
        str | None, options.Metavar("FACTORY"),
        "Search the dense part approximately, for more passages than memory holds: auto, by their number, or a factory "
        "string of FAISS such as IVF4096,PQ48 or HNSW32. Default: all are compared.",
    ] = None,
    bm25: Annotated[bool, "Whether the index has a BM25 part."] = True,
    force: Annotated[bool, "Replace an existing index, once the new one is built."] = False,
    resume: Annotated[bool, "Continue an interrupted build."] = False,
    skip_bad: SkipBad = False,
) -> None:  # fmt: skip
    """Index files and folders.

    .jsonl and .tsv files (also .gz) have a passage in each row, or with --contexts a question with its passages, and so
    do .csv and .json files whose rows have an id and a text; documents are split into passages of about 100 words:
    .txt, .md, .html, .pdf, .docx, .pptx, .xlsx, .epub, .eml. Links that lead out of a folder are not followed.
    """
    on_milvus = out.startswith(ADDRESS) or "://" in out
    if not sources and (on_milvus or not dense):
        raise click.UsageError("Missing argument 'SOURCE…'.")
    if approximate and on_milvus:
        raise click.UsageError("--approximate is of a folder: Milvus has an index of its own.")
    if contexts and (fields or metadata):
        raise click.UsageError("--contexts knows the fields of its files: leave --fields and --metadata out.")
    if metadata and not on_milvus:
        raise click.UsageError("--metadata is of Milvus: an index in a folder has no filters.")
    from typedrag.retrieval import FieldMap, build_index, embed_index, open_encoder
    from typedrag.retrieval.index.passages import add_places
    from typedrag.retrieval.index.sources import source_reader
    from typedrag.retrieval.milvus import MilvusIndex, build_milvus

    mapped = FieldMap.parse(fields)
    there = MilvusIndex(out) if on_milvus else None
    encoder = open_encoder(dense, query_prompt=query_prompt, passage_prompt=passage_prompt) if dense else None
    how = {"language": language, "bm25": bm25, "force": force, "resume": resume, **options.chosen(k1=k1, b=b)}
    if there:
        manifest = build_milvus(
            sources, there, counting, fields=mapped, metadata=tuple(filter(None, (metadata or "").split(","))),
            encoder=encoder, contexts=contexts, skip_bad=skip_bad, **how,
        )  # fmt: skip
        _say_built([manifest], there.place)
    elif sources:
        read = source_reader(sources, mapped, contexts=contexts, skip_bad=skip_bad)
        with add_places(read):
            built = build_index(
                (placed.passage for placed in read()), Path(out), sources=[str(source) for source in sources],
                encoder=encoder, approximate=approximate, stage=counting, **how,
            )  # fmt: skip
        _say_built(built, out)
    elif encoder:
        if k1 is not None or b is not None or language or not bm25:
            problem = "the passages of an index are embedded, and settings of its BM25 part are given"
            raise InputError(problem, "Leave them out")
        built = embed_index(Path(out), encoder, approximate=approximate, force=force, stage=counting)
        _say_built(built[1:], out)


@options.command(group=command)
def append(
    sources: Annotated[tuple[Path, ...], options.Metavar("SOURCE…")],
    *,
    out: Annotated[Path, "Folder of the index."],
    fields: Fields = "",
    resume: Annotated[bool, "Continue an interrupted addition."] = False,
    skip_bad: SkipBad = False,
    force: Annotated[bool, "Discard an interrupted addition, and start again."] = False,
) -> None:
    """Add files and folders to an index, and to its dense part if it has one.

    Until all are added, it answers as before; then as if it had been built from all of them.
    """
    from typedrag.retrieval import FieldMap, append_index
    from typedrag.retrieval.index.building import read_parts
    from typedrag.retrieval.index.generations import open_current
    from typedrag.retrieval.index.passages import add_places
    from typedrag.retrieval.index.sources import source_reader

    [held, *_] = [part for part in open_current(out, read_parts) if part]
    read = source_reader(sources, FieldMap.parse(fields), skip_bad=skip_bad, indexed=held.sources)
    with add_places(read):
        passages = (placed.passage for placed in read())
        names = [str(source) for source in sources]
        built = append_index(passages, out, sources=names, stage=counting, resume=resume, force=force)
    _say_built(built, str(out))


@options.command(group=command)
def info(index: str) -> None:
    """Print the manifest of INDEX, a folder or a collection of Milvus, as JSON.

    That of a folder's dense part is the field `dense`.
    """
    if index.startswith(ADDRESS):
        from typedrag.retrieval.milvus import MilvusIndex

        echo(MilvusIndex(index).manifest().model_dump_json(indent=1))
        return
    from typedrag.retrieval.index.building import read_parts
    from typedrag.retrieval.index.generations import open_current

    bm25, dense = open_current(Path(index), read_parts)
    facts = bm25.model_dump(mode="json") if bm25 else {}
    print_json({**facts, "dense": dense.model_dump(mode="json")} if dense else facts, indent=1)


@options.command(group=command)
def search(
    index: str,
    query: str,
    *,
    top_k: Annotated[PositiveInt, "-k", "Number of passages."] = 5,
    retriever: Annotated[
        str | None, "Of a folder: bm25, dense, hybrid, hybrid:WEIGHT or auto. Default: bm25."
    ] = None,
    k1: Annotated[float | None, "BM25's k1, instead of the manifest's."] = None,
    b: Annotated[float | None, "BM25's b, instead of the manifest's."] = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Print the passages of INDEX for QUERY, best first.

    INDEX is a folder, or an address, which says itself how it is searched.
    """
    from typedrag.retrieval import open_retriever, retriever_parts
    from typedrag.retrieval.opening import brings_index

    values: dict[Any, float] = options.chosen(k1=k1, b=b)
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
            print_json(asdict(passage))
        else:
            echo(f"{passage.score:7.3f}  {passage.id}  {passage.title}\n         {passage.text}\n")
    if not passages:
        say("no passage found")


@options.command(serve_command.settings_options(IndexSettings), group=command, old={"--replicas": "--workers"})
def serve(
    *,
    index: options.Index = None,
    retriever: Annotated[str, "bm25, dense, hybrid, hybrid:WEIGHT or auto."] = "bm25",
    host: serve_command.Host = "127.0.0.1",
    port: serve_command.Port = 8010,
    workers: serve_command.Workers = 1,
    limits: serve_command.OldLimits,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Let programs on other machines search an index over HTTP, until it is stopped.

    They name it by --retriever http://HOST:PORT, and need neither the index nor Java. Without --keys
    it listens on this machine alone.
    """
    from typedrag.retrieval.opening import default_index
    from typedrag.serving.index_server import open_index

    settings = read_settings(serve_command.given_settings(values, limits), IndexSettings)
    opening = partial(open_index, retriever, index, settings)
    name = f"{(index or default_index()).name} by {retriever}"
    serve_command.listen(name, opening, settings, workers=workers, host=host, port=port)


def _say_built(built: Sequence[Manifest | DenseManifest | MilvusManifest | None], place: str) -> None:
    from typedrag.retrieval import DenseManifest, Manifest

    for manifest in [part for part in built if part]:
        rate = manifest.passages / max(manifest.seconds, 1e-3)
        how = "" if isinstance(manifest, DenseManifest) else f" in language {manifest.language}"
        encoder = None if isinstance(manifest, Manifest) else manifest.encoder
        how += f" embedded with {encoder.model}" if encoder else ""
        seconds = f"{manifest.seconds:.1f} s"
        say(f"{manifest.passages:,} passages{how} in {seconds} ({rate:,.0f} a second): {place}")
