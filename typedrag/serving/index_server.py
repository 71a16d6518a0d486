"""A server of an index over HTTP, for programs on other machines; searches that wait are made together in one call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from typedrag import retrieval
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import BM25Retriever, DenseRetriever, HybridRetriever, IndexRetriever, open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.search import remote
from typedrag.retrieval.search.remote import BM25Settings, SearchRequest, ServedIndex
from typedrag.serving import status
from typedrag.serving.admission import Admission
from typedrag.serving.app import application
from typedrag.serving.monitoring import Metrics, request_line
from typedrag.serving.responses import Fault, Refused
from typedrag.serving.schema import replies
from typedrag.serving.server import drain_before_exit
from typedrag.serving.service import run_in_background
from typedrag.serving.settings import IndexSettings

T = TypeVar("T")

_TUNED = 8  # retrievers that are kept open for settings of BM25 other than the index's
_to_json = TypeAdapter(list[Passage]).dump_json


class SearchService:
    """Searches a retriever for clients, and refuses requests beyond its limits."""

    refusing = False

    def __init__(self, retriever: IndexRetriever, settings: IndexSettings) -> None:
        self.settings, self.retriever, self.metrics = settings, retriever, Metrics()
        self.admission = Admission(settings, self.metrics)
        at_once = min(settings.batch, settings.running + settings.queue)  # what goes together in one call
        self._searches = self.admission.turns(at_once, settings.running + settings.queue - at_once)
        self._tuned = lru_cache(_TUNED)(partial(_tuned, retriever))
        self._batcher = remote.Batcher(
            self._search, threads=settings.running, most=lambda kind: min(settings.batch, remote.MAX_REPLY // kind[0])
        )

    async def search(self, request: SearchRequest) -> bytes:
        if len(request.queries) > self.settings.batch:
            raise Refused(Fault(422, "batch_too_large", f"A request has {self.settings.batch} queries at most."))
        if request.part and not getattr(retrieval.retriever_parts(self.retriever), request.part):
            raise Refused(Fault(422, "no_such_part", f"The {request.part} part is not searched here."))
        request_line().questions.extend(request.queries)
        self.admission.count(len(request.queries) - 1)
        submit = partial(self._batcher.submit, (request.k, request.bm25, request.part), request.queries)
        passages = await self._in_turn(lambda: asyncio.wrap_future(submit()))
        fingerprint = self.retriever.identity["index"].encode()
        return b'{"index":"%b","passages":[%b]}' % (fingerprint, b",".join(passages))

    async def passage(self, passage_id: str) -> Passage | None:
        return await self._in_turn(lambda: run_in_background(partial(self.retriever.passage, passage_id)))

    async def served(self, settings: BM25Settings) -> ServedIndex:
        retriever = await self._in_turn(lambda: run_in_background(partial(self._tuned, settings)))
        sparse, dense = retrieval.retriever_parts(retriever)
        bm25 = sparse.manifest if isinstance(sparse, BM25Retriever) else None
        embedded = dense.manifest if isinstance(dense, DenseRetriever) else None
        manifest = bm25.model_dump(mode="json", exclude={"sources"}) if bm25 else {}
        if embedded:
            manifest["dense"] = embedded.model_dump(mode="json", exclude={"sources"})
        counted = bm25 or embedded
        return ServedIndex(
            identity=retriever.identity,
            retriever=str(retriever.identity.get("retriever", "bm25")),
            weight=retriever.weight if isinstance(retriever, HybridRetriever) else None,
            language=bm25.language if bm25 else "",
            passages=counted.passages if counted else 0,
            batch=self.settings.batch,
            manifest=manifest,
        )

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(self.settings.deadline), self._searches.take():
            return await work()

    def _search(self, kind: tuple[int, BM25Settings, remote.Part | None], queries: list[str]) -> list[bytes]:
        k, bm25, part = kind
        retriever = self._tuned(bm25)
        searched = getattr(retrieval.retriever_parts(retriever), part) if part else retriever
        return [_to_json(passages) for passages in searched.search(queries, k)]  # here, not in the event loop


def _tuned(retriever: IndexRetriever, bm25: BM25Settings) -> IndexRetriever:
    """The retriever with other settings of BM25, which shares its dense part."""
    sparse = retriever.sparse if isinstance(retriever, HybridRetriever) else retriever
    settings = bm25.model_dump(exclude_none=True)
    if not settings or not isinstance(sparse, BM25Retriever):
        return retriever
    other = BM25Retriever(sparse.index, **settings)
    if other.manifest.fingerprint != sparse.manifest.fingerprint:
        raise RetrievalError(f"index {sparse.index} has changed since it was opened", "Open it again")
    if isinstance(retriever, HybridRetriever):
        return HybridRetriever(other, retriever.dense, weight=retriever.weight)
    return other


DESCRIPTION = """Searches an index for programs that run elsewhere, by `--retriever` with the address of this server.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

router = APIRouter(prefix="/v1", tags=["index"])


def open_index(spec: str, index: Path | None, settings: IndexSettings) -> FastAPI:
    if brings_index(spec):
        raise InputError(f"'{spec}' has its own index", "Name what searches yours: bm25, dense, hybrid or auto")
    if spec == "gold":
        raise InputError("gold gives passages that a dataset labels, and a server has none", "Name another retriever")
    retriever = open_retriever(spec, index)

    service = SearchService(retriever, settings)
    return create_index_app(service, lambda: drain_before_exit(service.admission))


def create_index_app(service: SearchService, start: Callable[[], None] = lambda: None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        start()
        yield

    async def find_faults() -> dict[str, str]:
        return {"index": await status.find_fault([status.search_index(service.retriever)])}

    app = application(service, lifespan, (router, status.router), "typedrag index", DESCRIPTION)
    app.state.readiness = status.Readiness(service, find_faults)
    return app


@router.post("/search", responses=replies(remote.SearchReply, 503, 504))
async def search(body: SearchRequest, request: Request) -> Response:
    """Find the passages for each query, best first."""
    service: SearchService = request.app.state.service
    return Response(await service.search(body), media_type="application/json")


@router.get("/passage", responses=replies(remote.PassageReply, 503, 504))
async def passage(id: Annotated[str, Query(max_length=10_000)], request: Request) -> remote.PassageReply:
    """Give the passage of an id."""
    service: SearchService = request.app.state.service
    return remote.PassageReply(passage=await service.passage(id))


@router.get("/index", responses=replies(ServedIndex, 503, 504))
async def index(request: Request, bm25: Annotated[BM25Settings, Query()]) -> ServedIndex:
    """Describe the index and its retriever, with the given settings of BM25: identity, counts and manifest."""
    service: SearchService = request.app.state.service
    return await service.served(bm25)
