"""The places where a run's questions are answered: in this process, or by jobs that workers of a Ray cluster set up."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import dspy

from typedrag.core.call_context import use_context
from typedrag.core.errors import RetrievalError, TypedRAGError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.experiments.config import EvaluationConfig, LMConfig, ProgramConfig
from typedrag.experiments.resources import Resources
from typedrag.experiments.results import MetricResult
from typedrag.files.database import Tables
from typedrag.lms.lm import use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.lms.specs import default_spec, lm_provider
from typedrag.lms.trace import limit_tokens
from typedrag.metrics import Metric
from typedrag.programs import Program
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval.opening import brings_index

_HEARTBEAT = 2.0  # seconds between signs of life for claimed replies; those of a lost worker are released at once


class Executor(Protocol):
    """Answers questions and measures answers; called from many threads, each within its `track_cost`.

    Errors are those of programs and metrics, wherever they run.
    """

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """The answer to an example's question; of this type, if the asker says it."""
        ...

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult: ...


@dataclass(frozen=True)
class LocalExecutor:
    """The executor `local`: this process, within the caller's `use_lm`; without a program it only measures."""

    program: Program | None
    metrics: Mapping[str, Metric]

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        assert self.program, "all questions are answered"
        with use_context(labels=example.toDict()):
            return Answer.from_prediction(self.program(question=example.question, question_type=question_type))

    def warm_up(self, example: dspy.Example) -> None:
        """Start what the first answer would wait for, such as Java, an encoder and models: answer it without the LM."""
        if self.program is not None and self.program.retriever is not None:
            with suppress(TypedRAGError), limit_tokens(0), dspy.context(callbacks=[]):
                self.answer(example)

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        return MetricResult(**self.metrics[metric](example, answer.to_prediction()))


@dataclass(frozen=True)
class ProgramJob:
    """The `JobSpec` of a program's run, or of its answers to a file of questions; its configuration names that program
    alone, and `identity` is that of the retriever here, empty without one."""

    config: EvaluationConfig
    source: ProgramSource
    identity: Mapping[str, Any]

    @classmethod
    def of(cls, parts: Resources, program: ProgramConfig) -> Self:
        """The job, with all that the environment of this machine says written out, but no key."""
        source, scorer = parts.source(program), parts.config.scorer
        changes = {
            "programs": (program,),
            "lm": _fill_in(parts.config.lm),
            "scorer": scorer and _fill_in(scorer.inherit_address(parts.config.lm)),
            "index": shared_index(program.retriever, parts.config.index),
        }
        identity = parts.retriever(program).identity if source.retrieves else {}
        return cls(parts.config.model_copy(update=changes), source, identity)

    @contextmanager
    def __call__(self, replies: Tables | None, worker: str) -> Iterator[Executor]:
        [program] = self.config.programs
        parts = Resources(self.config, Path(), sources={program.program: self.source})
        if self.source.retrieves and dict((retriever := parts.retriever(program)).identity) != dict(self.identity):
            raise RetrievalError(
                f"the index {retriever.place} of a worker is not the one where the run was begun",
                "Let all machines have the same, or share it: typedrag index serve, and --retriever http://HOST:PORT",
            )
        executor = LocalExecutor(parts.program(program), parts.metrics)
        store = use_reply_store(replies, _HEARTBEAT, worker) if replies else nullcontext()
        with use_lm(parts.lm), store:
            executor.warm_up(dspy.Example(question="Why does bread rise?"))
            yield executor


def _fill_in(lm: LMConfig) -> LMConfig:
    spec = lm.spec or default_spec()
    address = os.environ.get("TYPEDRAG_API_BASE") if lm_provider(spec) == "vllm" else None
    return lm.model_copy(update={"spec": spec, "api_base": lm.api_base or address})


def shared_index(retriever: str | None, index: Path | None) -> Path | None:
    """The index that a retriever searches, as all machines find it; None for the sample's or an address."""
    named = None if brings_index(retriever or "") else index or os.environ.get("TYPEDRAG_INDEX")
    return Path(named).resolve() if named else index
