"""Evaluate programs: answers and judgments are written as they come, and never made twice."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dspy

from typedrag.errors import CallFailed, InputError, NotMeasurable, StepFailed
from typedrag.experiments.evaluate.answers_file import AnswersFile
from typedrag.experiments.evaluate.config import EvaluationConfig, ProgramConfig
from typedrag.experiments.evaluate.results import MetricResult, Run
from typedrag.experiments.evaluate.run_store import RunStore, is_run, read_records, read_run, spent_below, taken
from typedrag.experiments.evaluate.summary import RunSummary, summarize
from typedrag.experiments.executors.executor import Executor, Here
from typedrag.experiments.executors.ray_cluster import connected
from typedrag.experiments.projection import Projection, earlier_run
from typedrag.experiments.resources import Resources
from typedrag.experiments.tracking.runs import begin_run, log_run
from typedrag.experiments.tracking.tracing import trace_calls
from typedrag.experiments.tracking.tracker import Tracker, check_store
from typedrag.files.text_files import write_json
from typedrag.lms.calls import limit_calls_in_flight
from typedrag.lms.faults import Faults, fail, too_many
from typedrag.lms.lm import use_lm
from typedrag.lms.reply_store import REPLIES, use_reply_store
from typedrag.lms.spending import Account, Spending, charging
from typedrag.lms.threads import run_jobs
from typedrag.programs import Program
from typedrag.records import Answer

RESULTS = "results.json"
JUDGMENTS = "judgments.sqlite"
_ANSWERS = "answers"


@dataclass(frozen=True)
class Progress:
    """The progress of a run: finished and planned questions, and the cost of all runs so far.

    A question that is answered but not yet measured counts in part. `failed` counts answers and judgments.
    """

    run: str
    done: float
    planned: int
    failed: int
    spent: Spending


@dataclass(frozen=True)
class Evaluated:
    """A run that has ended; `stopped` says why it was stopped, or is empty if it is finished."""

    run: Run
    summary: RunSummary
    stopped: str


def run_evaluation(
    config: EvaluationConfig,
    out: Path,
    *,
    among: Collection[str] | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> Iterator[Evaluated]:
    """Make the runs of an evaluation, one after the other; yield each as it ends.

    Finished work is kept in each run's folder at once, and survives a kill. Programs that ask the LM the
    same get the same reply, which is stored beside the judgments; see `Replies`.

    Args:
        config: The configuration of the evaluation.
        out: The folder of the only run, or the parent folder of several.
        among: The ids of questions to draw from; by default all of the split.
        resume: Continue runs in these folders.
        retry_failed: Make failed answers and judgments of such runs again.
        on_progress: Called after each answer and judgment.
        on_notice: Called with messages for the user.

    Raises:
        InputError: If the configuration cannot be used, or a folder holds another run.
        Unavailable: If an LM, the index or a reranker cannot be used; finished work is kept.
    """
    if not config.metrics:
        raise InputError("no metric is named", "Name one: --metric linkage")
    cached = config.model_copy(update={"lm": config.lm.model_copy(update={"cache": True})})
    # beside the folders of the runs, so that later runs find it
    judgments = config.judgments or (out if config.programs[0].name else out.resolve().parent) / JUDGMENTS
    parts = Resources(cached, judgments, among)
    parts.check()
    limit_calls_in_flight(config.calls_in_flight)
    folders = {p.name: out / p.name for p in config.programs}
    if not resume and (there := next(filter(is_run, folders.values()), None)):
        raise taken(there)
    capped = any((config.caps.tokens, config.caps.lm_calls, config.caps.cost))
    own = (folder for folder in folders.values() if is_run(folder))
    # without caps, no other run has to be readable
    account = Account(spent_below(out) if capped else sum((read_run(folder).spent for folder in own), Spending()))
    with charging(account):  # naming types may ask the LM
        _ = parts.questions
    for answers in parts.given.values():
        if notice := answers.unanswered(parts.dataset.split(parts.split)):
            on_notice(f"{notice} of split '{parts.split}'; the others are left out")
    for program in config.programs:  # no run begins if another is refused
        if is_run(folders[program.name]):
            _open_store(parts, program, folders[program.name], resume=resume).close()
    if not all(map(is_run, folders.values())):
        parts.check_measurable()
    check_store(config.tracking, parts.redactor)
    threads, calls = config.threads, config.calls_in_flight
    with connected(config.executor, config.workers, threads=threads, calls=calls) as workers:
        for program in config.programs:
            evaluated = _make_run(
                parts, program, folders[program.name], account, judgments, workers,
                resume=resume, retry_failed=retry_failed, on_progress=on_progress, on_notice=on_notice,
            )  # fmt: skip
            yield evaluated
            if reason := config.caps.reached(account.spent):
                if evaluated.stopped or program is not config.programs[-1]:
                    on_notice(f"{reason}; what is done is kept")
                return


def _make_run(
    parts: Resources,
    config: ProgramConfig,
    folder: Path,
    account: Account,
    judgments: Path,
    workers: int,
    *,
    resume: bool,
    retry_failed: bool,
    on_progress: Callable[[Progress], None],
    on_notice: Callable[[str], None],
) -> Evaluated:
    source = parts.source(config)
    answers = source if isinstance(source, AnswersFile) else None
    program = None if answers else parts.program(config)  # first, so that a refusal leaves no folder
    metrics = parts.metrics
    tracker = Tracker(parts.config.tracking, parts.redactor, on_notice)
    with _open_store(parts, config, folder, resume=resume) as store:
        if retry_failed and (again := store.forget_failures()):
            on_notice(f"{again} failed answers and judgments are made again")
        if answers:
            answers.fill(store, parts.examples)
        begin_run(tracker, store)
        before = store.read()
        others = account.spent + before.spent.times(-1)
        projection = Projection(
            before.planned, parts.config.caps, lambda words: on_notice(f"{before.name}: {words}"), others
        )
        if not before.questions and (earlier := earlier_run(folder, before.settings)):
            projection.tell(earlier.records, f"as {earlier.folder}")

        def show(progress: Progress) -> None:
            on_progress(progress)
            projection.watch(progress.done, lambda: read_records(folder)[1])

        stopped = "a fault ended it"
        try:
            with _executor(parts, config, program, judgments, workers) as executor, trace_calls(tracker):
                stopped = Runner(parts, executor, store, parts.examples, account, tracker, show).run()
        finally:
            run = store.read()
            summary = summarize(run, metrics)
            log_run(tracker, run, summary, stopped)
            write_json(folder / RESULTS, summary.to_dict())
    return Evaluated(run, summary, stopped)


@contextmanager
def _executor(
    parts: Resources, config: ProgramConfig, program: Program | None, judgments: Path, workers: int
) -> Iterator[Executor]:
    """The executor of a run, with its replies kept beside the judgments; this process for answers made elsewhere."""
    replies = judgments.with_name(REPLIES)
    if program is None or not workers:
        with use_reply_store(replies):
            yield Here(program, parts.metrics)
        return
    from typedrag.experiments.executors.ray_workers import ray_workers
    from typedrag.experiments.executors.works import databases, evaluated_work

    work, shared = evaluated_work(parts, config), databases(replies, judgments)
    threads, calls = parts.config.threads, parts.config.calls_in_flight
    with ray_workers(work, workers, threads=threads, calls=calls, databases=shared) as pool:
        yield pool


def _open_store(parts: Resources, program: ProgramConfig, folder: Path, *, resume: bool) -> RunStore:
    settings, notes = parts.settings(program), parts.notes(program)
    return RunStore(folder, parts.questions, settings, notes=notes, resume=resume, redact=parts.redactor)


class Runner:
    """Answers and judges what is left of a run that is open, whose planned examples these are."""

    def __init__(
        self,
        parts: Resources,
        executor: Executor,
        store: RunStore,
        examples: Sequence[dspy.Example],
        account: Account,
        tracker: Tracker,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.metrics, self.config, self.lm = parts.metrics, parts.config, parts.answering_lm
        self.executor, self.store, self.account = executor, store, account
        self.tracker, self.on_progress = tracker, on_progress
        run = store.read()
        self.name, self.planned = run.name, run.planned
        self.steps_done = 0
        self.tried: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.last_problem: dict[str, str] = {}
        self.faults = {what: Faults() for what in (_ANSWERS, *self.metrics)}
        self.judging: deque[tuple[dspy.Example, Answer, str]] = deque()
        held = {q.id: q for q in run.questions}
        for example in examples:
            if question := held.get(str(example.id)):
                self._answered(example, question.answer, question.error, set(question.metrics))
                for name, result in question.metrics.items():
                    self._judged(name, result)
        self.asking = iter([e for e in examples if str(e.id) not in held])

    def run(self) -> str:
        """Do all that is left, unless there is a reason to stop; gives that reason, or nothing.

        Raises:
            Unavailable: If an LM, the index or a reranker cannot be used, once what was under way is kept.
        """
        stopped = ""

        def next_job() -> Callable[[], Callable[[], None]] | None:
            nonlocal stopped
            stopped = stopped or self._reason_to_stop()
            job = None if stopped else self._next_job()
            fault = next((held.fault for held in self.faults.values() if held.fault), None)
            return partial(fail, fault) if job and fault else job

        self._report()
        with use_lm(self.lm) if self.lm else nullcontext(), charging(self.account):
            for take in run_jobs(next_job, self.config.threads):
                take()
                self._report()
        for what, held in self.faults.items():
            failed, tried = self.failed[what] + len(held), self.tried[what] + len(held)
            held.settle(too_many=too_many(failed, tried, self.config.caps.failures))
        self._report()
        return stopped if self.judging or list(self.asking) else ""

    def _next_job(self) -> Callable[[], Callable[[], None]] | None:
        # judgments come first, so that few questions are half done if the run is stopped
        if self.judging:
            return partial(self._judge, *self.judging.popleft())
        if example := next(self.asking, None):
            return partial(self._answer, example)
        return None

    def _answer(self, example: dspy.Example) -> Callable[[], None]:
        answer, error, fault = None, "", None
        with charging(Account()) as account, self.tracker.span("answer", example.id):
            try:
                answer = self.executor.answer(example)
            except (InputError, StepFailed) as failure:
                error = str(failure)
            except CallFailed as failure:
                fault, error = failure, str(failure)
        keep = partial(self.store.add_answer, str(example.id), answer, error, account.spent)
        return self._kept(_ANSWERS, fault, keep, partial(self._answered, example, answer, error, set()))

    def _judge(self, example: dspy.Example, answer: Answer, name: str) -> Callable[[], None]:
        span = self.tracker.span(name, example.id) if self.metrics[name].scorer else nullcontext()
        fault = None
        with charging(Account()) as account, span:
            try:
                result = self.executor.measure(name, example, answer)
            except NotMeasurable as reason:
                result = MetricResult(None, problem=str(reason), measurable=False)
            except StepFailed as failure:
                result = MetricResult(None, problem=str(failure))
            except CallFailed as failure:
                fault, result = failure, MetricResult(None, problem=str(failure))
        keep = partial(self.store.add_result, str(example.id), name, result, account.spent)
        return self._kept(name, fault, keep, partial(self._judged, name, result))

    def _kept(
        self, what: str, fault: CallFailed | None, keep: Callable[[], None], count: Callable[[], None]
    ) -> Callable[[], None]:
        """Keep the result of a call at once; a failed one only once it is known not to be the LM's fault."""
        if fault is None:
            keep()
            return count

        def keep_and_count() -> None:
            keep()
            count()

        return partial(self.faults[what].hold, fault, keep_and_count)

    def _answered(self, example: dspy.Example, answer: Answer | None, error: str, judged: set[str]) -> None:
        self.steps_done += 1
        self._count(_ANSWERS, error, failed=answer is None)
        if answer is None:
            self.steps_done += len(self.metrics)  # there is nothing to measure
        else:
            self.judging.extend((example, answer, name) for name in self.metrics if name not in judged)

    def _judged(self, name: str, result: MetricResult) -> None:
        if name in self.metrics:
            self.steps_done += 1
            if result.measurable:
                self._count(name, result.problem, failed=result.score is None)

    def _count(self, what: str, problem: str, *, failed: bool) -> None:
        self.tried[what] += 1
        if failed:
            self.failed[what] += 1
            self.last_problem[what] = problem
        else:
            self.faults[what].answer()

    def _reason_to_stop(self) -> str:
        if reason := self.config.caps.reached(self.account.spent):
            return reason
        allowed = self.config.caps.failures
        for what, failed in self.failed.items():
            if too_many(failed, tried := self.tried[what], allowed):
                named = what if what == _ANSWERS else f"judgments of '{what}'"
                last = self.last_problem[what]
                return f"{failed} of {tried} {named} failed, where {allowed:.0%} are allowed; the last: {last}"
        return ""

    def _report(self) -> None:
        done = self.steps_done / (1 + len(self.metrics))
        self.on_progress(Progress(self.name, done, self.planned, self.failed.total(), self.account.spent))
