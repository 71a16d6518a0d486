"""The executor of a run that works in this process, and the jobs that workers of a Ray cluster set up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import dspy

from typedrag.core.call_context import use_context
from typedrag.core.errors import RetrievalError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.experiments.evaluate.config import EvaluationConfig, LMConfig, ProgramConfig
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.experiments.executors.ray_worker import Database
from typedrag.experiments.resources import Resources
from typedrag.files.database import Tables
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import default_spec, lm_provider, open_lm, use_lm
from typedrag.lms.replies import HELD, RELEASE_ALL, TABLES, use_reply_store
from typedrag.metrics import Metric
from typedrag.programs import Options, Program
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import open_reranker
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.protocols import IndexRetriever

REPLIES = "replies"
"""The database of an evaluation that its workers share."""
_HEARTBEAT = 2.0
"""Seconds between signs of life for claimed replies; those of a lost worker are released at once."""


class Executor(Protocol):
    """Answers questions and measures answers; called from many threads, each within its `track_cost`.

    Errors are those of programs and metrics, wherever they run.
    """

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """The answer to an example's question; of this type, if the asker says it."""
        ...

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """The result of a metric on an answer."""
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """The executor `local`: this process, within the caller's `use_lm`; without a program it only measures."""

    program: Program | None
    metrics: Mapping[str, Metric]

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """See `Executor`."""
        assert self.program, "all questions are answered"
        with use_context(labels=example.toDict()):
            return Answer.from_prediction(self.program(question=example.question, question_type=question_type))

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """See `Executor`."""
        return MetricResult(**self.metrics[metric](example, answer.to_prediction()))


class JobSpec(Protocol):
    """The description of a worker's job: names and settings, small to send, by which it builds program and metrics."""

    def setup(self, tables: Callable[[str], Tables], worker: str) -> Any:
        """A context with the object whose methods the worker calls, such as an `Executor`.

        Args:
            tables: Gives the database of a name, which all workers share.
            worker: The worker's name.
        """
        ...


@dataclass(frozen=True)
class AskJob:
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
    def setup(self, tables: Callable[[str], Tables], worker: str) -> Iterator[Executor]:
        """See `JobSpec`."""
        retriever = self.source.open_retriever(self.index, self.retriever)
        check_same(retriever, self.identity)
        program = self.source.build(retriever, open_reranker(self.reranker), self.options)
        with use_lm(track_calls(open_lm(self.lm, api_base=self.api_base, **self.settings))):
            yield LocalExecutor(program, {})


@dataclass(frozen=True)
class EvaluationJob:
    """A run of an evaluation, whose configuration has one program.

    Attributes:
        source: The program, read where the run was begun.
        identity: As in `AskJob`.
    """

    config: EvaluationConfig
    source: ProgramSource
    identity: Mapping[str, Any]

    @contextmanager
    def setup(self, tables: Callable[[str], Tables], worker: str) -> Iterator[Executor]:
        """See `JobSpec`."""
        [program] = self.config.programs
        parts = Resources(self.config, Path(REPLIES), sources={program.program: self.source})
        check_same(parts.retriever(program) if self.source.retrieves else None, self.identity)
        executor = LocalExecutor(parts.program(program), parts.metrics)
        with ExitStack() as stack:
            stack.enter_context(use_lm(parts.lm))
            stack.enter_context(use_reply_store(tables(REPLIES), _HEARTBEAT, worker))
            yield executor


def evaluation_job(parts: Resources, program: ProgramConfig) -> EvaluationJob:
    """The job of a program's run, with all that the environment of this machine says written out, but no key."""
    source = parts.source(program)
    retriever = parts.retriever(program) if source.retrieves else None
    scorer = parts.config.scorer
    changes = {
        "programs": (program,),
        "lm": _written_out(parts.config.lm),
        "scorer": scorer and _written_out(scorer.beside(parts.config.lm)),
        "index": index_for(program.retriever, parts.config.index),
    }
    return EvaluationJob(parts.config.model_copy(update=changes), source, retriever.identity if retriever else {})


def shared_databases(replies: Path) -> dict[str, Database]:
    """The files that the workers of an evaluation share."""
    return {REPLIES: Database(replies.resolve(), HELD, TABLES, RELEASE_ALL)}


def _written_out(lm: LMConfig) -> LMConfig:
    spec = lm.spec or default_spec()
    return lm.model_copy(update={"spec": spec, "api_base": lm.api_base or base_of(spec)})


def base_of(spec: str) -> str | None:
    """The address that the environment gives for the LM of a spec."""
    return os.environ.get("TYPEDRAG_API_BASE") if lm_provider(spec) == "vllm" else None


def index_for(retriever: str | None, index: Path | None) -> Path | None:
    """The index that a retriever searches, as all machines find it; None for the sample's, which each machine has, and
    where the retriever is the address of an index itself."""
    named = None if brings_index(retriever or "") else index or os.environ.get("TYPEDRAG_INDEX")
    return Path(named).resolve() if named else index


def check_same(retriever: IndexRetriever | None, identity: Mapping[str, Any]) -> None:
    """Refuse an index that is another than where the run was begun."""
    if retriever is not None and dict(retriever.identity) != dict(identity):
        raise RetrievalError(
            f"the index {retriever.place} of a worker is not the one where the run was begun",
            "Let all machines have the same, or share it: typedrag index serve, and --retriever http://HOST:PORT",
        )
