"""Evaluate programs: answers and judgments are written as they come, and never made twice."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from typedrag.core.errors import InputError
from typedrag.core.records import Answer
from typedrag.experiments import results
from typedrag.experiments.answers_file import AnswersFile
from typedrag.experiments.config import EvaluationConfig, ProgramConfig
from typedrag.experiments.cost import Estimator, find_earlier_run
from typedrag.experiments.executors import Executor, LocalExecutor, ProgramJob
from typedrag.experiments.ray_pool import RayPool, connect
from typedrag.experiments.resources import Resources
from typedrag.experiments.results import ANSWERS, PlannedQuestion, Run, RunSummary, restore_run
from typedrag.experiments.tracking.tracker import Tracker, begin_run, check_store, log_run, trace_calls
from typedrag.files.text_files import write_json
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.metrics.objective import missing_input
from typedrag.runs import AnyOf, MaxFailures, Outcome, Progress, Result, RunFolder, Stopper, is_run, read_folder, work
from typedrag.runs.folder import exists_error

RESULTS = "results.json"


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
    same get the same reply, which is stored beside their folders; see `ReplyStore`.

    Args:
        config: The configuration of the evaluation.
        out: The folder of the only run, or the parent folder of several.
        among: The ids of questions to draw from; by default all of the split.
        resume: Continue runs in these folders.
        retry_failed: Make failed answers and judgments of such runs again.
        on_progress: Called after each answer and judgment.
        on_notice: Called with messages for the user.
    """
    if not config.metrics:
        raise InputError("no metric is named", "Name one: --metric linkage")
    cached = config.model_copy(update={"lm": config.lm.model_copy(update={"cache": True})})
    # beside the folders of the runs, so that later runs find it
    replies = config.replies or (out if config.programs[0].name else out.resolve().parent) / REPLIES
    parts = Resources(cached, replies, among)
    parts.check()
    limit_calls_in_flight(config.calls_in_flight)
    folders = {p.name: out / p.name for p in config.programs}
    if not resume and (there := next(filter(is_run, folders.values()), None)):
        raise exists_error(there)
    own = sum((read_folder(folder).spent for folder in folders.values() if is_run(folder)), Spending())
    caps = config.caps  # without those that earlier spending counts against, no other run has to be readable
    account = CostTracker(results.spent_below(out) if any((caps.tokens, caps.lm_calls, caps.cost)) else own)
    with track_cost(account):  # naming types may ask the LM
        _ = parts.questions
    for answers in parts.given.values():
        if notice := answers.unanswered(parts.dataset.split(parts.split)):
            on_notice(f"{notice} of split '{parts.split}'; the others are left out")
    for program in config.programs:  # no run begins if another is refused
        if is_run(folders[program.name]):
            open_run(parts, program, folders[program.name], resume=resume).close()
    if not all(map(is_run, folders.values())):
        parts.check_measurable()
    check_store(config.tracking, parts.redactor)
    limits, threads, calls = caps.stopper(), config.threads, config.calls_in_flight

    def make_run(program_config: ProgramConfig, workers: int) -> Evaluated:
        folder, source = folders[program_config.name], parts.source(program_config)
        answers = source if isinstance(source, AnswersFile) else None
        program = None if answers else parts.program(program_config)  # first, so that a refusal leaves no folder
        metrics = parts.metrics
        tracker = Tracker(config.tracking, parts.redactor, on_notice)
        with open_run(parts, program_config, folder, resume=resume) as held, ExitStack() as stack:
            if retry_failed and (again := held.store.forget_failures()):
                on_notice(f"{again} failed answers and judgments are made again")
            if answers:
                answers.fill(held.store, parts.examples)
            before = restore_run(held.store.read(), folder)
            begin_run(tracker, before, parts.dataset, held.store.note)
            others = account.spent + before.spent.times(-1)
            estimator = Estimator(before.planned, caps, lambda words: on_notice(f"{before.name}: {words}"), others)
            if not before.questions and (earlier := find_earlier_run(folder, before.settings)):
                estimator.report(earlier[1], f"as {earlier[0]}")

            def show(progress: Progress) -> None:
                on_progress(progress)
                estimator.update(progress.done, lambda: results.read_records(folder)[1])

            executor: Executor = LocalExecutor(program, metrics)
            stopped = "a fault ended it"
            try:
                if program and workers:
                    job = ProgramJob.of(parts, program_config)
                    pool = RayPool(job, workers, threads=threads, calls=calls, replies=replies)
                    executor = stack.enter_context(closing(pool))
                else:
                    stack.enter_context(use_reply_store(replies))
                with trace_calls(tracker):
                    stopped = answer_and_judge(
                        parts, executor, held, parts.examples, name=before.name, account=account, tracker=tracker,
                        stop=limits, on_progress=show,
                    ).stopped  # fmt: skip
            finally:
                stack.close()
                run = restore_run(held.store.read(), folder)
                summary = results.summarize(run, metrics)
                log_run(tracker, run, summary, stopped)
                write_json(folder / RESULTS, summary.to_dict())
        return Evaluated(run, summary, stopped)

    with connect(config.executor, config.workers, threads=threads, calls=calls) as workers:
        for program in config.programs:
            evaluated = make_run(program, workers)
            yield evaluated
            if reason := limits(Progress(spent=account.spent)):
                if evaluated.stopped or program is not config.programs[-1]:
                    on_notice(f"{reason}; what is done is kept")
                return


def open_run(
    parts: Resources,
    program: ProgramConfig,
    folder: Path,
    *,
    resume: bool,
    questions: Sequence[PlannedQuestion] | None = None,
    notes: Mapping[str, Any] | None = None,
    durable: bool = True,
) -> RunFolder:
    """Open the run of a program in a folder, which may get more metrics and questions."""
    settings, planned = parts.settings(program), parts.questions if questions is None else questions
    return RunFolder.open(
        folder, settings, kind=results.KIND, resume=resume, redact=parts.redactor, durable=durable,
        items=results.question_items(planned),
        additions=[name for name in settings if name.startswith(results.METRIC)],
        notes={**parts.notes(program), **(notes or {})},
    )  # fmt: skip


def answer_and_judge(
    parts: Resources,
    executor: Executor,
    folder: RunFolder,
    examples: Sequence[dspy.Example],
    *,
    name: str,
    account: CostTracker,
    tracker: Tracker,
    stop: Stopper,
    on_progress: Callable[[Progress], object],
) -> Outcome:
    """Answer what is left of the examples of an open run, and judge the answers; see `work`."""
    by_id, metrics, lm = {str(e.id): e for e in examples}, parts.metrics, parts.answering_lm
    held = {(result.item, result.step) for result in folder.store.read().results}
    with folder.store.transaction():  # not even a failed answer counts for a metric that can measure none
        for item, example in by_id.items():
            for metric_name, metric in metrics.items():
                if (item, metric_name) not in held and (lack := missing_input(metric, example)):
                    folder.store.add(Result(item, metric_name, problem=lack, skipped=True))
    too_many = MaxFailures(parts.config.caps.failures, {metric: f"judgments of '{metric}'" for metric in metrics})

    def do(item: str, step: str, answer: Any) -> Any:
        example = by_id[item]
        if step == ANSWERS:
            with tracker.span("answer", item):
                return executor.answer(example).to_dict()
        with tracker.span(step, item) if metrics[step].scorer else nullcontext():
            return results.metric_value(executor.measure(step, example, Answer.from_dict(answer)))

    with use_lm(lm) if lm else nullcontext():
        left = (example for item, example in by_id.items() if (item, ANSWERS) not in held)
        if isinstance(executor, LocalExecutor) and (first := next(left, None)):
            executor.warm_up(first)
        return work(
            by_id, do, folder.store, steps=(ANSWERS, *metrics), threads=parts.config.threads,
            stop=AnyOf(stop, too_many), listener=on_progress, account=account, name=name,
        )  # fmt: skip
