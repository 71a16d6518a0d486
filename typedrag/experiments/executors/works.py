"""The description of a run for its workers: names and settings, by which each builds program and metrics once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from typedrag.errors import RetrievalError
from typedrag.experiments.evaluate.config import EvaluationConfig, LMConfig, ProgramConfig
from typedrag.experiments.executors.executor import Executor, Here
from typedrag.experiments.executors.ray_actors import Database
from typedrag.experiments.resources import Resources
from typedrag.files.database import Tables
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import default_spec, open_lm, provider_of, use_lm
from typedrag.lms.replies import HELD, RELEASE_ALL, TABLES, use_reply_store
from typedrag.programs import Options
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import open_reranker
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.protocols import IndexRetriever

REPLIES = "replies"
"""The database of an evaluation that its workers share."""
_HEARTBEAT = 2.0
"""Seconds between signs of life for claimed replies; those of a lost worker are released at once."""


class Work(Protocol):
    """The spec of what a worker does, small enough to be sent."""

    def opened(self, tables: Callable[[str], Tables], worker: str) -> Any:
        """A context, within which the worker answers and measures.

        Args:
            tables: Gives the database of a name, which all workers share.
            worker: The worker's name.
        """
        ...


@dataclass(frozen=True)
class AskedWork:
    """Questions that a program answers, as `typedrag ask --file` asks them.

    Attributes:
        retriever: Its spec; by default the program's.
        identity: That of the retriever where the run was begun; empty without one.
        lm: The LM's spec, with its address and its settings, as `open_lm` takes them.
    """

    source: ProgramSource
    options: Options
    retriever: str | None
    index: Path | None
    reranker: str
    identity: Mapping[str, Any]
    lm: str
    api_base: str | None
    settings: Mapping[str, Any]

    @contextmanager
    def opened(self, tables: Callable[[str], Tables], worker: str) -> Iterator[Executor]:
        """See `Work`."""
        searched = self.source.open_retriever(self.index, self.retriever)
        check_same(searched, self.identity)
        program = self.source.build(searched, open_reranker(self.reranker), self.options)
        with use_lm(track_calls(open_lm(self.lm, api_base=self.api_base, **self.settings))):
            yield Here(program, {})


@dataclass(frozen=True)
class EvaluatedWork:
    """A run of an evaluation, whose configuration has one program.

    Attributes:
        source: The program, read where the run was begun.
        identity: As in `AskedWork`.
    """

    config: EvaluationConfig
    source: ProgramSource
    identity: Mapping[str, Any]

    @contextmanager
    def opened(self, tables: Callable[[str], Tables], worker: str) -> Iterator[Executor]:
        """See `Work`."""
        [program] = self.config.programs
        parts = Resources(self.config, Path(REPLIES), sources={program.program: self.source})
        check_same(parts.retriever(program) if self.source.retrieves else None, self.identity)
        here = Here(parts.program(program), parts.metrics)
        with ExitStack() as stack:
            stack.enter_context(use_lm(parts.lm))
            stack.enter_context(use_reply_store(tables(REPLIES), _HEARTBEAT, worker))
            yield here


def evaluated_work(parts: Resources, program: ProgramConfig) -> EvaluatedWork:
    """The work of a program's run, with all that the environment of this machine says written out, but no key."""
    source = parts.source(program)
    searched = parts.retriever(program) if source.retrieves else None
    scorer = parts.config.scorer
    changes = {
        "programs": (program,),
        "lm": _written_out(parts.config.lm),
        "scorer": scorer and _written_out(scorer.beside(parts.config.lm)),
        "index": index_for(program.retriever, parts.config.index),
    }
    return EvaluatedWork(parts.config.model_copy(update=changes), source, searched.identity if searched else {})


def databases(replies: Path) -> dict[str, Database]:
    """The files that the workers of an evaluation share."""
    return {REPLIES: Database(replies.resolve(), HELD, TABLES, RELEASE_ALL)}


def _written_out(lm: LMConfig) -> LMConfig:
    spec = lm.spec or default_spec()
    return lm.model_copy(update={"spec": spec, "api_base": lm.api_base or base_of(spec)})


def base_of(spec: str) -> str | None:
    """The address that the environment gives for the LM of a spec."""
    return os.environ.get("TYPEDRAG_API_BASE") if provider_of(spec) == "vllm" else None


def index_for(retriever: str | None, index: Path | None) -> Path | None:
    """The index that a retriever searches, as all machines find it; None for the sample's, which each machine has, and
    where the retriever is the address of an index itself."""
    named = None if brings_index(retriever or "") else index or os.environ.get("TYPEDRAG_INDEX")
    return Path(named).resolve() if named else index


def check_same(retriever: IndexRetriever | None, identity: Mapping[str, Any]) -> None:
    """Refuse an index that is another than where the run was begun.

    Raises:
        RetrievalError: If it is.
    """
    if retriever is not None and dict(retriever.identity) != dict(identity):
        raise RetrievalError(
            f"the index {retriever.place} of a worker is not the one where the run was begun",
            "Let all machines have the same, or share it: typedrag index serve, and --retriever http://HOST:PORT",
        )
