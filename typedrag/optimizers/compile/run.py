"""Compile a configuration to a folder that a server loads, and test it on held-out questions.

The folder of a compile holds `run.sqlite`, with its identity; `program` (or `judge`), the best so far and in
the end the compiled one; `compile`, with the folder of the target, and `replies.sqlite`, from which a killed
compile resumes; `test`, the runs of base and compiled program over the test split, with each compiled
program that was tested; and `result.json`.
"""

import base64
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from typedrag.core.errors import InputError
from typedrag.core.redaction import redact_values
from typedrag.datasets.dataset import text_hash
from typedrag.experiments import formats
from typedrag.experiments.compare import ALL, Difference
from typedrag.experiments.evaluate import run_evaluation
from typedrag.experiments.held_out import TRUTH, with_truthfulness
from typedrag.experiments.judges.saved import SavedJudge, save_judge
from typedrag.experiments.resources import bm25_settings, reranker_spec
from typedrag.experiments.results import FEWEST
from typedrag.experiments.tracking.registry import log_model
from typedrag.experiments.tracking.tracker import Tracker, check_store
from typedrag.files.text_files import write_text
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import Spending
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.metrics.objective import measurable_ids
from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.held_out import HeldOut, check_test, held_out, held_out_alone, is_changed, keep_check
from typedrag.optimizers.compile.optimize import KIND, CompileEstimate, CompileOutcome, compile_module, estimate_compile
from typedrag.optimizers.compile.prompt_optimizers.candidates import Candidate, best_so_far, read_candidates
from typedrag.optimizers.compile.resources import COMPILE, CompileResources
from typedrag.programs import Program
from typedrag.programs.artifact import dump_state, fingerprint, lost_injection_guard
from typedrag.programs.compiled import Compiled, CompiledAbout, save_compiled
from typedrag.runs import Progress, RunFolder, is_run

PROGRAM, JUDGE, TEST, RESULT = "program", "judge", "test", "result.json"
ESTIMATE = "estimate"
BASE, COMPILED = "base", "compiled"
RISK = "risk"
"""The tag for the risk of optimizing the named metrics, in a compile or a sweep."""
PAGE = Path(__file__).with_name("trajectory_page")
_TARGET, _NUMBER = "typedrag.target", "typedrag.candidate"
_NUMBERS = ("score", "base", "n", "failed", "unjudged", "lm_calls", "tokens")
_INK, _ALL, _BEST = "#7d828b", "#3f83cf", "#d9662f"
"""Colours that can be read on light and on dark pages."""


class Plan(NamedTuple):
    """The planned cost of a compile."""

    estimate: CompileEstimate  # the cost, from three questions
    lm_calls: int  # the LM calls after which the compile stops
    tokens: int | None  # the tokens after which it stops; None for no limit
    tests: int  # runs of the program on the test split, which no other number includes
    types: int = 0  # questions whose types the LM names first, within the limits; no other number includes them


@dataclass(frozen=True)
class CompileResult:
    """The result of a compile."""

    folder: Path  # the folder of the compiled program or judge
    target: str  # the name of what was compiled
    outcome: CompileOutcome  # what the optimizer reached
    test: HeldOut  # the result on the test split
    spent: Spending  # the cost of the compile, without the test
    registered: str = ""  # the version of a registered model in MLflow, as `models:/NAME/VERSION`; empty if it is none
    risk: str = ""  # the known risk of compiling against these metrics; empty if none
    predictors: int = 0  # the number of predictors that the compile could change

    def to_dict(self) -> dict[str, Any]:
        outcome, test = self.outcome, self.test
        return {
            "folder": str(self.folder),
            "targets": {
                self.target: {"stopped": outcome.stopped, "candidates": [asdict(c) for c in outcome.candidates]}
            },
            "spent": {**self.spent.to_dict(), "tokens": self.spent.tokens, "cost": self.spent.cost},
            "verdict": test.verdict,
            "p": test.p,
            "tests": test.tests,
            "test": test.comparison.to_dict() if test.comparison else None,
            "registered": self.registered,
            "risk": self.risk,
        }


@dataclass(frozen=True)
class CompileProgress:
    """Callbacks for the progress of a compile."""

    plan: Callable[[Plan], None] = lambda plan: None
    candidate: Callable[[str, Candidate], None] = lambda target, candidate: None
    test: Callable[[Progress], None] = lambda progress: None
    notice: Callable[[str], None] = lambda notice: None


def plan_compile(config: CompileConfig, out: Path) -> Plan:
    """Estimate the cost of a compile from three questions, whose replies the compile will reuse.

    Where the LM is to name types of questions, it is not yet asked: the three may be others than the compile's first.

    It raises what `run_compile` raises.
    """
    return _Compile(config, out, CompileProgress(), only_planned=True).plan()


def run_compile(
    config: CompileConfig, out: Path, *, resume: bool = False, watching: CompileProgress | None = None
) -> CompileResult:
    """Compile a program, a part of one, or a judge, and test it once on the test split.

    Args:
        config: The configuration of the compile.
        out: The folder of the compile, which always holds the best so far.
        resume: Continue the compile in the folder.
        watching: Callbacks for the progress.

    Raises:
        InputError: If the configuration cannot be used, or the folder holds something else.
        StepFailed: If the base answers no validation question, or none can be judged.
        LMUnavailable: If an LM cannot be used; finished work is kept.
        RetrievalError: If the index or a reranker cannot be used; finished work is kept.
    """
    if not resume and is_begun(out):
        raise InputError(f"{out} is not empty", "Continue the compile in it with --resume, or name another --out")
    compiling = _Compile(config, out, watching or CompileProgress())
    result = compiling.run()
    text = json.dumps(result.to_dict(), ensure_ascii=False, indent=1)
    write_text(out / RESULT, compiling.redactor(text) + "\n")
    return result


def is_begun(out: Path) -> bool:
    """True if the folder holds more than an estimate or a refused compile may have left."""
    left = (REPLIES, COMPILE)
    return out.is_dir() and any(not file.name.startswith(left) for file in out.iterdir())


def test_run_name(program: Path) -> str:
    """The name in `test` of the run of the program in a folder: a resumed compile may find another."""
    return f"{COMPILED}-{Compiled.read(program).fingerprint}"


class _Compile(CompileResources):
    def __init__(
        self, config: CompileConfig, out: Path, watching: CompileProgress, *, only_planned: bool = False
    ) -> None:
        super().__init__(config, out, types_by_lm=not only_planned)
        self.check()
        self.out, self.watching, self.saved = out, watching, out / (JUDGE if self.judge else PROGRAM)
        # without the LM's types, the examples come in another order
        other = only_planned and self.types
        self.folder = out / COMPILE / (ESTIMATE if other else "") / self.target.name
        self.replies = config.replies or out / REPLIES
        self.tracker = Tracker(config.tracking, self.redactor, watching.notice)
        limit_calls_in_flight(config.calls_in_flight)

    def plan(self) -> Plan:
        """Estimate the compile, and refuse what cannot be compiled or tested before anything is paid."""
        _ = self.base, self.dataset  # loaded first, since opening the replies makes the folder
        request = self.request(self.folder)
        if self.config.test_limit is None:
            check_test(self.test_examples, self.dataset, "--test-limit")
        with use_reply_store(self.replies, keep_unreadable=True):  # for the target and the test
            estimate = estimate_compile(request, self.optimizer, self.stop)
        return Plan(estimate, *self.limits, 2 * len(self.test_examples), self.types)

    def run(self) -> CompileResult:
        check_store(self.config.tracking, self.redactor)
        # the target has a folder of its own in this one
        open_folder = partial(RunFolder.open, self.out, self.identity, kind=KIND, resume=True, items={})
        if is_run(self.out):  # so that nothing is paid for another compile
            open_folder().close()
        self.watching.plan(self.plan())
        if self.risk:
            self.watching.notice(self.risk)
        with open_folder():
            tags = {RISK: self.risk}
            self.tracker.begin_folder(self.out, self.public_settings, kind="compile", dataset=self.dataset, tags=tags)
            log = partial(log_compile, self.tracker, target=self.target.name, risk=self.risk)
            try:
                # unreadable replies are kept, so that a resumed compile fails where it failed
                with use_reply_store(self.replies, keep_unreadable=True):
                    result = self._run()
            except BaseException as error:
                why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else "a fault ended it"
                log(read_candidates(self.folder), None, stopped=why)
                raise
            outcome = result.outcome
            version = log(outcome.candidates, result, stopped=outcome.stopped, register_as=self.config.register_as)
            return replace(result, registered=version)

    def _run(self) -> CompileResult:
        target, base = self.target, self.base
        request = self.request(self.folder)

        def on_candidate(candidate: Candidate) -> None:
            best = best_so_far(self.folder, request.student) if candidate.best else None
            if best is not None:
                self._save(target.merge_into(base, best))
            self.watching.candidate(target.name, candidate)
            log_candidates(self.tracker, read_candidates(self.folder), target.name)

        outcome = compile_module(request, self.optimizer, self.stop, on_candidate=on_candidate)
        compiled = target.merge_into(base, outcome.best)
        self._save(compiled)
        before = target.student() if base is None else base
        if names := lost_injection_guard(dump_state(before), dump_state(compiled)):
            self.watching.notice(
                f"no longer told never to follow instructions in passages: {', '.join(names)}. "
                "Read `typedrag research diff` before strangers' texts get there"
            )
        test = self._test(before, compiled)
        self._save(compiled, test)
        if test.comparison and base is not None:  # a later candidate, of a larger budget, replaces `program` untested
            self._save(compiled, test, self.out / TEST / test_run_name(self.saved) / PROGRAM)
        spent = self.spent_on_types + outcome.spent
        predictors = len(request.student.predictors())
        return CompileResult(self.saved, target.name, outcome, test, spent, risk=self.risk, predictors=predictors)

    def _save(self, module: dspy.Module, test: HeldOut | None = None, folder: Path | None = None) -> None:
        config = self.config
        about = CompiledAbout(
            metric=self.objective.name,
            metric_options={name: options for name, options in self.metric_options.items() if options},
            optimizer=self.optimizer.name,
            optimizer_options=self.optimizer.model_dump(mode="json"),
            budget=config.budget.name,
            modules=(self.target.name,) if config.modules else (),
            dataset=self.dataset.name,
            dataset_fingerprint=self.dataset.fingerprint,
            subset=config.dataset.subset or "",
            index="" if self.judge else self.resources.index_fingerprint(config.program),
            seed=config.dataset.seed,
            lms=self.lm_settings,
        )
        if test:
            questions = text_hash(json.dumps(sorted(str(e.id) for e in self.test_examples)))[:16]
            about = replace(about, test_questions=questions, **test.about)
        if not isinstance(module, Program):
            save_judge(module, self.saved, about, redact=self.redactor)
            if test:
                keep_check(self.saved, test, self.resources.lm.model, self.dataset)
            return
        save_compiled(
            module,
            folder or self.saved,
            about,
            reranker=reranker_spec(config.program, self.source),
            retriever=self.resources.retriever_spec(config.program),
            bm25=bm25_settings(config.program, self.source),
            redact=self.redactor,
        )

    def _test(self, base: dspy.Module, compiled: dspy.Module) -> HeldOut:
        config, folder = self.config, self.out / TEST
        if self.judge:
            tests = SavedJudge.read(self.saved).count_tests(self.resources.lm.model, self.dataset)
        else:
            this = f"{COMPILED}-{fingerprint(dump_state(compiled))}"
            tests = len({this, *(file.stem for file in folder.glob(f"{COMPILED}-*"))})
        if self.own_labels:
            return held_out_alone(
                self.target,
                base,
                compiled,
                self.test_examples,
                folder,
                lm=self.resources.lm,
                threads=config.threads,
                seed=config.seed,
                tests=tests,
                listener=self._show_test,
                redact=self.redactor,
            )
        changed, notice = is_changed(base, compiled), self.watching.notice
        programs = [config.program.model_copy(update={"name": BASE})]
        if changed:
            program = self.resources.with_compiled(config.program, self.saved)
            programs.append(program.model_copy(update={"name": test_run_name(self.saved)}))
        metrics = with_truthfulness(
            self.resources.config.metrics, self.test_examples, self.dataset, self.resources.scorer, notice
        )
        evaluated = run_evaluation(
            config.test_evaluation(*programs).model_copy(update={"metrics": metrics}),
            folder,
            among={str(e.id) for e in self.examples("test")},
            resume=True,
            on_progress=self._show_test,
            on_notice=notice,
        )
        runs = [one.run for one in evaluated]
        if changed and not all(run.values(TRUTH) for run in runs):
            notice("truthfulness could be measured of no test question: the verdict does not go by it")
        measurable = measurable_ids([metric for metric, _ in self.objective.metrics], self.test_examples)
        weights = {m.name: m.weight for m in config.against}
        other = runs[1] if len(runs) > 1 else None
        return held_out(runs[0], other, weights, measurable, config.seed, tests=tests)

    def _show_test(self, progress: Progress) -> None:
        name = COMPILED if progress.run.startswith(COMPILED) else BASE
        self.watching.test(replace(progress, run=name))


def log_candidates(tracker: Tracker, candidates: Sequence[Candidate], target: str) -> None:
    if tracker.works:
        with tracker.attempt("a candidate", "It and the others are logged at the end"):
            _log_candidates(tracker, candidates, target)


def _log_candidates(tracker: Tracker, candidates: Sequence[Candidate], target: str) -> None:
    best = None
    for candidate in candidates:
        best = candidate.score if candidate.best else best
        tags = {"kind": "candidate", _TARGET: target, _NUMBER: str(candidate.number)}
        nested = tracker.child(f"candidate {candidate.number}", tags)
        if nested.finished:
            continue
        nested.log({name: getattr(candidate, name) for name in _NUMBERS})
        texts = {"how": candidate.how, "state": candidate.state, "changed": ", ".join(candidate.changed)}
        nested.log_settings({name: text for name, text in texts.items() if text})
        curves = {"candidate/score": candidate.score, "candidate/best": best}
        curves |= {"spent/lm_calls": candidate.lm_calls, "spent/tokens": candidate.tokens}
        tracker.log({name: value for name, value in curves.items() if value is not None}, step=candidate.number)
        nested.end()  # last: it marks the candidate as logged


def log_compile(
    tracker: Tracker,
    candidates: Sequence[Candidate],
    result: CompileResult | None,
    target: str,
    *,
    risk: str = "",
    stopped: str = "",
    register_as: str | None = None,
) -> str:
    """Log a compile; return the registered version as `models:/NAME/VERSION`, empty if there is none."""
    if not tracker.id:
        return ""
    version = ""
    with tracker.attempt(f"compile '{tracker.name}'", "Nothing is lost: log it with --resume"):
        _log_candidates(tracker, candidates, target)
        if candidates:
            rows = [{"target": target, **asdict(c), "changed": ", ".join(c.changed)} for c in candidates]
            tracker.table("candidates.json", rows)
            shown = [Candidate.from_dict(redact_values(asdict(c), tracker.redact)) for c in candidates]
            tracker.artifact("trajectory.html", render_candidates(shown, target, tracker.name, risk))
            tracker.link("trajectory.html", "The compile's candidates as a page")
        tracker.tag({"stopped": stopped or "no"})
        if result is not None:
            tracker.artifact("result.json", json.dumps(result.to_dict(), ensure_ascii=False, indent=1) + "\n")
            last = max((candidate.number for candidate in candidates), default=0)
            tracker.log(result.spent.metrics, step=1 + last)  # the curves' last point
            tracker.artifacts(result.folder, result.folder.name)
            is_program = result.folder.name == PROGRAM
            about = (Compiled if is_program else SavedJudge).read(result.folder).about
            tracker.log(dict(_test_metrics(about, result.test.differences)))
            tracker.conclude(about.verdict)
            if is_program:
                version = log_model(tracker, result.folder, register_as)
        tracker.end(stopped=result is None)
    return version


def _test_metrics(about: CompiledAbout, differences: Sequence[Difference]) -> Iterator[tuple[str, float]]:
    """Yield metrics such as `test/compiled/linkage/mrr` overall and `test/compiled/linkage/mrr/reason` by type."""
    estimates = {f"base/{measure}": score for measure, score in about.base.items()}
    estimates |= {f"compiled/{measure}": score for measure, score in about.compiled.items()}
    if about.p is not None:
        yield "test/p", about.p
    for d in differences:
        name = d.measure if d.stratum == ALL else f"{d.measure}/{d.stratum.name}"
        for side, estimate in (("base", d.baseline), ("compiled", d.other), ("difference", d.difference)):
            if estimate is not None:
                estimates[f"{side}/{name}"] = estimate
        if d.p is not None:
            yield f"test/p/{name}", d.p
    for name, estimate in estimates.items():
        by_type = name.count("/") > 2
        if by_type and (estimate.n < FEWEST or "/cost/" in name):
            continue
        yield f"test/{name}", estimate.value
        for part in () if by_type else ("low", "high", "n"):
            if (value := getattr(estimate, part)) is not None:
                yield f"test/{name}/{part}", float(value)


def render_candidates(candidates: Sequence[Candidate], target: str, title: str, risk: str = "") -> str:
    """The chart and table of one or more candidates as an HTML page, whose policy allows no script and no loading."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    best = [c for c in candidates if c.best]
    inks: dict[Any, Any] = dict.fromkeys(("xtick.color", "ytick.color", "axes.labelcolor", "axes.edgecolor"), _INK)
    content = io.BytesIO()
    with rc_context({**inks, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel="LM calls", ylabel="score", xlim=(0, 1.03 * max(1, *(c.lm_calls for c in candidates))))
        axes.grid(axis="y", color=_INK, alpha=0.25)
        axes.axhline(candidates[0].score, color=_INK, linestyle="--")
        for on_all, face in ((True, _ALL), (False, "none")):
            points = [(c.lm_calls, c.score) for c in candidates if c.full_valset is on_all]
            axes.scatter(*zip(*points, strict=True) if points else ([], []), facecolor=face, edgecolor=_ALL, zorder=3)
        if best:
            calls = [*(c.lm_calls for c in best), candidates[-1].lm_calls]
            axes.step(calls, [*(c.score for c in best), best[-1].score], color=_BEST, where="post")
        figure.savefig(content, format="svg", transparent=True)
    chart = f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"
    filters: dict[str, Any] = {"value": formats.format_value, "count": formats.format_count}
    shown: dict[str, Any] = {"candidates": candidates, "chart": chart}
    return formats.render_page(PAGE, filters, title=title, risk=risk, target=target, **shown)
