"""Compile a program within limits; a compile can be stopped, killed and resumed.

A compile has a folder of its own. `run.sqlite` holds its identity and what three questions cost, `candidates.jsonl` the
evaluated candidates, `best.json` the best so far, `spending.jsonl` a line for each LM call, `replies.sqlite` the
replies of LMs (unless several compiles share a file elsewhere), and `optimizer.log` DSPy's output.
"""

import hashlib
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError, LMInvalidRequestError
from pydantic import BaseModel

from typedrag.core.errors import CallFailed, InputError, StepFailed, first_line
from typedrag.datasets.dataset import plain
from typedrag.experiments.cost import SAMPLE, estimate_cost
from typedrag.experiments.question_typing import balance_types
from typedrag.lms.asking import unavailable_error
from typedrag.lms.cost import LEDGER, CostTracker, Spending, track_cost
from typedrag.lms.lm import PerLMAdapter, lm_identity, with_cache
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.lms.trace import run_concurrently
from typedrag.optimizers.compile.prompt_optimizers.base import Compilation, CompileRequest, Optimizer
from typedrag.optimizers.compile.prompt_optimizers.candidates import (
    Candidate,
    CandidateLog,
    Scoring,
    best_so_far,
    find_best,
)
from typedrag.optimizers.compile.prompt_optimizers.limiter import CallLimiter, Faulted, Ledger, LimitReached, Stopped
from typedrag.programs.artifact import dump_state, fingerprint
from typedrag.runs import AnyOf, RunFolder, Stopper, is_run

FORMAT = 2
KIND, LOG = "compile", "optimizer.log"
_SAMPLE = "cost of the sample"
_NO_LIMIT = 10**9
"""DSPy's limit on errors: failed examples are counted for each candidate, and worse errors close the limiter."""


@dataclass(frozen=True)
class CompileOutcome:
    """The result of a compile."""

    best: dspy.Module
    candidates: tuple[Candidate, ...]
    spent: Spending
    stopped: str

    @property
    def base_candidate(self) -> Candidate | None:
        """The base; None if the compile was stopped before its score was known."""
        return next(iter(self.candidates), None)

    @property
    def best_candidate(self) -> Candidate | None:
        """The best candidate; its score is too good, since it was chosen by it. None if there is no base."""
        return find_best(self.candidates)


class CompileEstimate(NamedTuple):
    """The estimated cost of a compile, from three questions."""

    runs: int | None
    total: Spending


def compile_module(
    request: CompileRequest,
    optimizer: Optimizer,
    stop: Stopper | None = None,
    *,
    on_candidate: Callable[[Candidate], None] = lambda candidate: None,
) -> CompileOutcome:
    """Compile a module, one at a time in a process, since DSPy has one cache.

    In a folder where the same compile was begun it resumes: answered LM calls are not made again, and
    earlier costs count. Where `stop` gives a reason, the best program so far is the result; by default nothing does.
    """
    with _begun(request, optimizer, stop, on_candidate) as (run, _):
        stopped = ""
        try:
            base = run.evaluate(run.student, "as it is")
            if base.failed == base.n:
                run.limiter.faults.finish()
                raise StepFailed("answer", f"the program answers none of the {base.n} validation examples")
            if base.unjudged == base.n:
                raise StepFailed("judge", f"the metric can judge none of the {base.n} validation examples")
            run.evaluate(optimizer.compile(run), "what came out")
        except Faulted as fault:
            raise fault.error from None
        except Stopped as reason:
            stopped = str(reason)
        except (AdapterParseError, LMInvalidRequestError) as error:
            # raised for the prompt model: a program handles its own, or they are counted
            stopped = f"the prompt model gave the optimizer nothing it could use: {first_line(error)}"
        except LMError as error:
            raise unavailable_error(error) or error from error
    best = best_so_far(request.log_dir, request.student) or request.student.deepcopy()
    return CompileOutcome(best, tuple(run.log.candidates), run.limiter.account.spent, stopped)


def estimate_compile(request: CompileRequest, optimizer: Optimizer, stop: Stopper | None = None) -> CompileEstimate:
    """Estimate the cost of a compile from the first three validation examples.

    The compile begins with the same examples and reuses their replies, so nothing is paid twice; the cost counts
    against its limits, and is kept in the folder for later calls. If a limit is reached before the end, the estimate is
    too low. It raises what `compile_module` raises.
    """
    with _begun(request, optimizer, stop) as (run, store):
        spent = [Spending.from_dict(known) for known in store.read().notes.get(_SAMPLE, [])]

        def run_once(example: dspy.Example) -> None:
            with track_cost(CostTracker()) as account:
                try:
                    run.scoring(example, run.student(**example.inputs()))
                except Faulted as fault:
                    raise fault.error from None
                except (InputError, StepFailed, CallFailed):
                    pass
                finally:
                    spent.append(account.spent)

        if not spent:
            with suppress(LimitReached):
                run_concurrently(run_once, list(run.valset[:SAMPLE]), request.threads)
                run.limiter.faults.finish()
                store.note(_SAMPLE, [of_one.to_dict() for of_one in spent])
    runs = optimizer.planned_runs(*optimizer.sizes(request))
    return CompileEstimate(runs, estimate_cost([("runs", of_one) for of_one in spent], runs or 1))


_one_at_a_time = threading.Lock()


@contextmanager
def _begun(
    request: CompileRequest,
    optimizer: Optimizer,
    stop: Stopper | None,
    on_candidate: Callable[[Candidate], None] = lambda candidate: None,
) -> Iterator[tuple[Compilation, Any]]:
    """The compile under way in its folder, and the folder's store."""
    if not request.trainset or not request.valset:
        raise InputError("there is nothing to compile on", "Training and validation sets need examples")
    optimizer.check(request)
    folder = request.log_dir
    train, validation = optimizer.sizes(request)
    used = replace(
        request,
        trainset=balance_types(request.trainset, request.seed)[:train],
        valset=balance_types(request.valset, request.seed)[:validation],
        task_lm=(task := with_cache(request.task_lm)),
        teacher_lm=with_cache(request.teacher_lm) if request.teacher_lm else task,
        prompt_lm=with_cache(request.prompt_lm) if request.prompt_lm else task,
    )
    if not _one_at_a_time.acquire(blocking=False):
        raise InputError("another compile is under way in this process", "Compile in another process")
    with ExitStack() as stack:
        stack.callback(_one_at_a_time.release)
        if folder.exists() and not is_run(folder) and any(file.name != ".lock" for file in folder.iterdir()):
            raise InputError(f"{folder} holds something else", "Name an empty folder, or that of the same compile")
        identity = compile_identity(used, optimizer)
        opened = stack.enter_context(RunFolder.open(folder, identity, kind=KIND, resume=True, items={}))
        stack.enter_context(use_reply_store(folder / REPLIES, keep_unreadable=True))
        limiter = CallLimiter(stop or AnyOf(), Ledger(folder / LEDGER))
        scoring = Scoring(request.metric, limiter)
        log = CandidateLog(folder, request.student, used.valset, scoring, limiter, on_candidate)
        stack.enter_context(_dspy_logged(folder / LOG, request.redact))
        stack.enter_context(track_cost(limiter.account))
        callbacks = [limiter, log, *dspy.settings.callbacks]
        settings = {"num_threads": request.threads, "max_errors": _NO_LIMIT, "trace": None}
        stack.enter_context(dspy.context(lm=task, adapter=PerLMAdapter(), callbacks=callbacks, **settings))
        stack.callback(limiter.end)  # the last callback, so that it comes first
        yield Compilation(**vars(used), scoring=scoring, limiter=limiter, log=log), opened.store


def compile_identity(request: CompileRequest, optimizer: Optimizer) -> dict[str, Any]:
    """All that a compile depends on; two compiles with equal identities are the same."""
    lms = {"task LM": request.task_lm, "teacher LM": request.teacher_lm, "prompt LM": request.prompt_lm}
    return {
        "format": FORMAT,
        "optimizer": optimizer.name,
        "options": optimizer.model_dump(mode="json"),
        "seed": request.seed,
        "student": fingerprint(dump_state(request.student)),
        "modules": {
            name: [type(part).__qualname__, options.model_dump(mode="json") if isinstance(options, BaseModel) else None]
            for name, part in request.student.named_sub_modules(dspy.Module)
            for options in [getattr(part, "options", None)]
        },
        "trainset": _fingerprint(request.trainset),
        "valset": _fingerprint(request.valset),
        "metric": getattr(request.metric, "name", type(request.metric).__name__),
        **{role: lm_identity(lm or request.task_lm) for role, lm in lms.items()},
        **request.depends_on,
    }


def _fingerprint(examples: Sequence[dspy.Example]) -> str:
    def as_json(value: Any) -> Any:
        try:
            return plain(value)
        except TypeError:
            return repr(value)

    texts = [json.dumps(e.toDict(), sort_keys=True, default=as_json) for e in examples]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@contextmanager
def _dspy_logged(file: Path, redact: Callable[[str], str]) -> Iterator[None]:
    """Redirect DSPy's many prints and log messages, within the context, to a file."""
    logger = logging.getLogger("dspy")
    before = logger.handlers[:], logger.propagate, logger.level
    with file.open("a", encoding="utf-8", buffering=1) as opened, redirect_stdout(_Redacted(opened, redact)) as log:
        logger.handlers, logger.propagate = [logging.StreamHandler(log)], False
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.handlers, logger.propagate = before[:2]
            logger.setLevel(before[2])


class _Redacted(io.TextIOBase):
    def __init__(self, file: io.TextIOBase, redact: Callable[[str], str]) -> None:
        self._file, self._redact = file, redact

    def write(self, text: str) -> int:
        self._file.write(self._redact(text))
        return len(text)
