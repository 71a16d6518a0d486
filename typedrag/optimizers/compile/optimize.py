"""Compile a program within a budget; a compile can be stopped, killed and resumed.

A compile has a folder of its own. `run.sqlite` holds its identity, `candidates.jsonl` the evaluated
candidates, `best.json` the best so far, `spending.jsonl` a line for each LM call, `replies.sqlite` the
replies of LMs (unless several compiles share a file elsewhere), and `optimizer.log` DSPy's output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError, LMInvalidRequestError

from typedrag.errors import CallFailed, InputError, StepFailed, first_line
from typedrag.experiments.balance import balanced
from typedrag.files.text_files import write_json
from typedrag.lms.asking import unavailable_error
from typedrag.lms.cost import LEDGER, Spending, track_cost
from typedrag.lms.lm import PerLMAdapter, with_cache
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.lms.trace import run_concurrently
from typedrag.optimizers.compile.folder import compile_folder, identity_of, logged
from typedrag.optimizers.compile.teleprompters.budget import (
    Budget,
    BudgetSpent,
    Faulted,
    Gate,
    Ledger,
    Stopped,
    closing,
    spent_by,
)
from typedrag.optimizers.compile.teleprompters.candidates import Candidate, Trajectory, best_of
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, RunCost
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer
from typedrag.optimizers.compile.teleprompters.scoring import Scoring

COST = "run_cost.json"
_MEASURED = 3
"""The number of examples that measure the cost of a run."""
_NO_LIMIT = 10**9
"""DSPy's limit on errors: failed examples are counted for each candidate, and worse errors close the gate."""


@dataclass(frozen=True)
class CompileOutcome:
    """The result of a compile.

    Attributes:
        best: The best program, without LMs; the student itself if none is better.
        candidates: All evaluations on validation examples, in order; the first is the base's.
        spent: The cost of the compile, also before it was resumed.
        stopped: Why the optimizer was stopped; empty if it ended by itself.
    """

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
        return best_of(self.candidates)


def compile_module(
    request: CompileRequest,
    optimizer: Optimizer,
    budget: Budget | None = None,
    *,
    on_candidate: Callable[[Candidate], None] = lambda candidate: None,
) -> CompileOutcome:
    """Compile a module, one at a time in a process, since DSPy has one cache.

    In a folder where the same compile was begun it resumes: answered LM calls are not made again, and
    earlier costs count. The budget is by default the one that chose the optimizer's options; once it is
    spent, the best program so far is the result.

    Raises:
        InputError: If the optimizer refuses the request, the folder holds something else, or a compile is
            under way in this process or in this folder.
        StepFailed: If the base program answers no validation example, or none can be judged.
        LMUnavailable: If an LM cannot be used. The best so far is kept; see `best_so_far`.
        RetrievalError: If the index cannot be used. The best so far is kept.
    """
    if not request.trainset or not request.valset:
        raise InputError("there is nothing to compile on", "Training and validation sets need examples")
    optimizer.check(request)
    with _begun(request, optimizer, budget or Budget.named(optimizer.budget), on_candidate) as run:
        stopped = _compile(run, optimizer)
    trajectory = run.trajectory
    return CompileOutcome(trajectory.best_program, tuple(trajectory.candidates), run.gate.account.spent, stopped)


def measure_run_cost(request: CompileRequest, optimizer: Optimizer, budget: Budget | None = None) -> RunCost:
    """Measure the mean cost of a run of the student and its judgment, on the first validation examples.

    The compile begins with the same examples and reuses their replies, so nothing is paid twice; the cost counts
    against the budget. If the budget is spent before the end, the measured cost is too low. The result is kept in
    the folder for later calls. It raises what `compile_module` raises.
    """
    optimizer.check(request)
    file = request.log_dir / COST
    with _begun(request, optimizer, budget or Budget.named(optimizer.budget), lambda candidate: None) as run:
        if file.exists():
            return RunCost(**json.loads(file.read_text("utf-8")))
        shown = list(run.valset[:_MEASURED])
        with suppress(BudgetSpent):
            run_concurrently(partial(_run_once, run), shown, request.threads)
        run.gate.faults.finish()
        whole = run.gate.stopped is None
    spent = run.gate.account.spent  # of all attempts: what one that was interrupted has paid, the next finds kept
    cost = RunCost(spent.usage.lm_calls / len(shown), spent.tokens / len(shown), spent.dollars / len(shown))
    if whole:
        write_json(file, asdict(cost))
    return cost


def spent_in(folder: Path) -> Spending:
    """The spending of the compile in a folder so far."""
    return spent_by(folder / LEDGER)


def _run_once(run: Compilation, example: dspy.Example) -> None:
    try:
        run.scoring(example, run.student(**example.inputs()))
    except Faulted as fault:
        raise fault.error from None
    except (InputError, StepFailed, CallFailed):
        pass  # its cost until then is counted


def _compile(run: Compilation, optimizer: Optimizer) -> str:
    """Run the optimizer, and return why it was stopped; empty if it ended by itself."""
    try:
        base = run.evaluate(run.student, "as it is")
        if base.failed == base.n:
            run.gate.faults.finish()
            raise StepFailed("answer", f"the program answers none of the {base.n} validation examples")
        if base.unjudged == base.n:
            raise StepFailed("judge", f"the metric can judge none of the {base.n} validation examples")
        compiled = optimizer.compile(run)
        if run.trajectory.whole(compiled) is None:
            run.evaluate(compiled, "what came out")
    except Faulted as fault:
        raise fault.error from None
    except Stopped as reason:
        return str(reason)
    except (AdapterParseError, LMInvalidRequestError) as error:
        # raised for the prompt model: a program handles its own, or they are counted
        return f"the prompt model gave the optimizer nothing it could use: {first_line(error)}"
    except LMError as error:
        raise unavailable_error(error) or error from error
    return ""


@contextmanager
def _begun(
    request: CompileRequest, optimizer: Optimizer, budget: Budget, on_candidate: Callable[[Candidate], None]
) -> Iterator[Compilation]:
    folder = request.log_dir
    folder.mkdir(parents=True, exist_ok=True)
    train, validation = optimizer.sizes(request)
    trainset = balanced(request.trainset, request.seed)[:train]
    valset = balanced(request.valset, request.seed)[:validation]
    task = with_cache(request.task_lm)
    teacher = with_cache(request.teacher_lm) if request.teacher_lm else task
    prompt = with_cache(request.prompt_lm) if request.prompt_lm else task
    with ExitStack() as stack:
        stack.enter_context(compile_folder(folder, identity_of(request, optimizer, trainset, valset)))
        stack.enter_context(use_reply_store(folder / REPLIES, keep_unreadable=True))
        gate = Gate(budget, Ledger(folder / LEDGER))
        scoring = Scoring(request.metric, gate)
        trajectory = Trajectory(folder, request.student, task.model, valset, scoring, gate, on_candidate)
        stack.enter_context(logged(folder, request.redact))
        stack.enter_context(track_cost(gate.account))
        stack.enter_context(
            dspy.context(
                lm=task,
                adapter=PerLMAdapter(),
                callbacks=[gate, trajectory, *dspy.settings.callbacks],
                num_threads=request.threads,
                max_errors=_NO_LIMIT,
                trace=None,
            )
        )
        stack.enter_context(closing(gate))  # entered last, so that it is left first
        used = {"trainset": trainset, "valset": valset, "task_lm": task, "teacher_lm": teacher, "prompt_lm": prompt}
        yield Compilation(**{**vars(request), **used}, scoring=scoring, gate=gate, trajectory=trajectory)
