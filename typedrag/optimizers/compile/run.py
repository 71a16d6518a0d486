"""Compile a configuration to a folder that a server loads, and test it on held-out questions.

The folder of a compile holds `run.sqlite`, with its identity; `program` (or `judge`), the best so far and in
the end the compiled one; `compile`, a folder for each target, and `replies.sqlite`, from which a killed
compile resumes; `test`, the runs of base and compiled program over the test split, with each compiled
program that was tested; and `result.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dspy
from pydantic import TypeAdapter

from typedrag.errors import InputError
from typedrag.experiments.compare.truth import TRUTH
from typedrag.experiments.evaluate.evaluate import run_evaluation
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.judges.records import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, save_judge
from typedrag.experiments.resources import bm25_of, with_fingerprints
from typedrag.experiments.tracking.tracker import Tracker, check_store
from typedrag.files.text_files import write_text
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import Spending
from typedrag.lms.lm import default_spec, with_cache
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.metrics import Metric
from typedrag.metrics.objective import measurable_by
from typedrag.optimizers.compile.checked_judge import check_saved_judge, check_test, test_examples
from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.folder import KIND
from typedrag.optimizers.compile.held_out import HeldOut, held_out, run_alone
from typedrag.optimizers.compile.optimize import CompileOutcome, compile_module, measure_run_cost, spent_in
from typedrag.optimizers.compile.resources import COMPILE, CompileResources
from typedrag.optimizers.compile.targets import Target
from typedrag.optimizers.compile.teleprompters import Budget, Candidate, CostEstimate, best_so_far, candidates_in
from typedrag.optimizers.compile.tracking import RISK, log_candidates, log_compile
from typedrag.programs import Program
from typedrag.programs.artifact.compiled import Compiled, CompiledAbout, save_compiled
from typedrag.programs.artifact.state import fingerprint, state_of
from typedrag.programs.quoted_material import unguarded
from typedrag.runs import Progress, RunFolder, is_run
from typedrag.runs.stages import Listener, unheard

PROGRAM, JUDGE, TEST, RESULT = "program", "judge", "test", "result.json"
ESTIMATE = "estimate"
BASE, COMPILED = "base", "compiled"
_ABOUT = TypeAdapter(CompiledAbout)


@dataclass(frozen=True)
class Plan:
    """The estimated cost of a compile.

    Attributes:
        estimates: The estimate of each target, by its name.
        budget: The budget after which the compile stops.
        tests: Runs of the program on the test split, which no other number includes.
        types: Questions whose types the LM names first, within the budget; no other number includes them.
    """

    estimates: Mapping[str, CostEstimate]
    budget: Budget
    tests: int
    types: int = 0

    @property
    def lm_calls(self) -> int:
        """LM calls of all targets."""
        return sum(estimate.lm_calls for estimate in self.estimates.values())

    @property
    def tokens(self) -> int:
        """Tokens of all targets."""
        return sum(estimate.tokens for estimate in self.estimates.values())

    @property
    def dollars(self) -> float:
        """Dollars of all targets, as far as prices are known."""
        return sum(estimate.dollars for estimate in self.estimates.values())


@dataclass(frozen=True)
class CompileResult:
    """The result of a compile.

    Attributes:
        folder: The folder of the compiled program or judge.
        outcomes: The outcome of each target, by its name.
        test: The result on the test split; None for a judge, or if nothing was tested.
        check: A judge's agreement with people; None for a program, or if nothing was tested.
        spent: The cost of the compile, without the test.
        registered: The version of a registered model in MLflow, as `models:/NAME/VERSION`; empty if it is none.
        untested: Why nothing was tested; empty if it was tested.
        risk: The known risk of compiling against these metrics; empty if none.
    """

    folder: Path
    outcomes: Mapping[str, CompileOutcome]
    test: HeldOut | None
    check: JudgeCheck | None
    spent: Spending
    registered: str = ""
    untested: str = ""
    risk: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "folder": str(self.folder),
            "targets": {
                name: {"stopped": outcome.stopped, "candidates": [asdict(c) for c in outcome.candidates]}
                for name, outcome in self.outcomes.items()
            },
            "spent": {**self.spent.to_dict(), "tokens": self.spent.tokens, "cost": self.spent.cost},
            "verdict": self.test.verdict if self.test else "",
            "p": self.test.p if self.test else None,
            "tests": self.test.tests if self.test else None,
            "test": self.test.comparison.to_dict() if self.test and self.test.comparison else None,
            "check": asdict(self.check) if self.check else None,
            "registered": self.registered,
            "untested": self.untested,
            "risk": self.risk,
        }


@dataclass(frozen=True)
class CompileProgress:
    """Callbacks for the progress of a compile.

    Attributes:
        plan: Called with the plan before the compile begins.
        candidate: Called with each new candidate and the name of its target.
        test: Called with the progress of the test's runs.
        listener: Called with the progress of tests that are no runs of a program.
        notice: Called with messages for the user.
    """

    plan: Callable[[Plan], None] = lambda plan: None
    candidate: Callable[[str, Candidate], None] = lambda target, candidate: None
    test: Callable[[Progress], None] = lambda progress: None
    listener: Listener = unheard
    notice: Callable[[str], None] = lambda notice: None


def plan_compile(config: CompileConfig, out: Path) -> Plan:
    """Estimate the cost of a compile from three questions, whose replies the compile will reuse.

    Where the LM is to name types of questions, it is not yet asked: the three may be others than the compile's first.

    It raises what `run_compile` raises.
    """
    return _Compile(config, out, CompileProgress(), only_planned=True).plan()


def run_compile(
    config: CompileConfig,
    out: Path,
    *,
    resume: bool = False,
    watching: CompileProgress | None = None,
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
    write_text(out / RESULT, compiling.parts.redactor(text) + "\n")
    return result


def is_begun(out: Path) -> bool:
    """True if the folder holds more than an estimate or a refused compile may have left."""
    left = (REPLIES, COMPILE)
    return out.is_dir() and any(not file.name.startswith(left) for file in out.iterdir())


def tested_as(program: Path) -> str:
    """The name in `test` of the run of the program in a folder: a compile that goes on may find another."""
    return f"{COMPILED}-{Compiled.read(program).fingerprint}"


class _Compile:
    def __init__(
        self, config: CompileConfig, out: Path, watching: CompileProgress, *, only_planned: bool = False
    ) -> None:
        self.config, self.out, self.watching = config, out, watching
        self._begun: dict[str, Path] = {}
        self.parts = CompileResources(config, out, types_by_lm=not only_planned)
        self.parts.check()
        self._only_planned = only_planned
        self.tracker = Tracker(config.tracking, self.parts.redactor, watching.notice)
        limit_calls_in_flight(config.calls_in_flight)

    def plan(self) -> Plan:
        parts, program = self.parts, self._base
        _ = parts.dataset  # loaded first, since opening the replies makes the folder
        requests = [parts.request(t, program, self._folder(n, program)) for n, t in enumerate(parts.targets)]
        self._check_test()
        for request in requests:  # checked first, so that nothing is paid if one is refused
            parts.optimizer.check(request)
        with self._replies():  # for all targets and the test
            cost = measure_run_cost(requests[0], parts.optimizer, _share(parts.budget, parts.spent_on_types, 1))
        estimates = [parts.optimizer.estimate(replace(request, run_cost=cost)) for request in requests]
        named = {t.name: e for t, e in zip(parts.targets, estimates, strict=True)}
        return Plan(named, parts.budget, 2 * len(parts.test_examples), parts.types)

    def run(self) -> CompileResult:
        check_store(self.config.tracking, self.parts.redactor)
        if is_run(self.out):  # so that nothing is paid for another compile
            self._open().close()
        self.watching.plan(self.plan())
        if self.parts.risk:
            self.watching.notice(self.parts.risk)
        with self._open():
            return self._make()

    def _replies(self) -> AbstractContextManager[None]:
        """The store of all LM replies; unreadable ones are kept, so that a resumed compile fails where it failed."""
        return use_reply_store(self.config.replies or self.out / REPLIES, keep_unreadable=True)

    def _open(self) -> RunFolder:
        """The folder of all targets, each of which has one of its own in it."""
        return RunFolder.open(self.out, self.parts.identity, kind=KIND, resume=True, items={})

    def _make(self) -> CompileResult:
        parts = self.parts
        self.tracker.begin_folder(self.out, parts.public_settings, {RISK: parts.risk})
        several = len(parts.targets) > 1
        try:
            with self._replies():
                result = replace(self._run(), risk=parts.risk)
        except BaseException as error:
            begun = {name: candidates_in(folder) for name, folder in self._begun.items()}
            why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else "a fault ended it"
            log_compile(self.tracker, begun, None, several=several, risk=parts.risk, stopped=why)
            raise
        stopped = "; ".join(outcome.stopped for outcome in result.outcomes.values() if outcome.stopped)
        version = log_compile(
            self.tracker,
            {name: outcome.candidates for name, outcome in result.outcomes.items()},
            result,
            several=several,
            risk=parts.risk,
            stopped=stopped,
            register_as=self.config.register_as,
        )
        return replace(result, registered=version)

    def _run(self) -> CompileResult:
        parts = self.parts
        compiled: dspy.Module | None = self._base
        outcomes: dict[str, CompileOutcome] = {}
        spent = parts.spent_on_types
        for number, target in enumerate(parts.targets):
            program = None if parts.judge else compiled
            spent += self._left_behind(number, program)
            if why := parts.budget.forbids(spent):
                left = ", ".join(t.name for t in parts.targets[number:])
                self.watching.notice(f"left as it is: {left}. {why}; give more and --resume")
                break
            outcomes[target.name] = outcome = self._compile(number, target, program, spent)
            compiled = target.put_back(program, outcome.best)
            spent += outcome.spent
        assert compiled is not None, "there is a target"
        bests = [best for outcome in outcomes.values() if (best := outcome.best_candidate)]
        lm = next((best.lm for best in bests if best.lm), "")
        self._save(compiled, len(outcomes), lm=lm)
        if self._base and (names := unguarded(state_of(self._base), state_of(compiled))):
            self.watching.notice(
                f"no longer told never to follow instructions in passages: {', '.join(names)}. "
                "Read `typedrag diff` before strangers' texts get there"
            )
        if lm:
            why = f"the best is to be run with {lm}, and the test would ask the LM that it was compiled for"
            return CompileResult(self._saved, outcomes, None, None, spent, untested=why)
        if parts.judge:
            return CompileResult(self._saved, outcomes, None, self._check(), spent)
        test = self._test(compiled)
        self._save(compiled, len(outcomes), test)
        if test.comparison:  # a later candidate, of a larger budget, replaces `program` untested
            self._save(compiled, len(outcomes), test, self.out / TEST / tested_as(self._saved) / PROGRAM)
        return CompileResult(self._saved, outcomes, test, None, spent)

    @property
    def _base(self) -> Program | None:
        return None if self.parts.judge else self.parts.base

    @property
    def _saved(self) -> Path:
        return self.out / (JUDGE if self.parts.judge else PROGRAM)

    def _folder(self, number: int, program: Program | None) -> Path:
        """The folder of a target, which depends on the program that earlier targets have left."""
        name = self.parts.targets[number].name
        if len(self.parts.targets) > 1:
            name = f"{number + 1}-{name}"
        if number:
            assert program is not None, "of several targets none is a judge"
            name += f"-{fingerprint(state_of(program))}"
        if self._only_planned and self.parts.types:  # without the LM's types, the examples come in another order
            name = f"{ESTIMATE}/{name}"
        return self.out / COMPILE / name

    def _left_behind(self, number: int, program: Program | None) -> Spending:
        """The cost of a target in its earlier folders, see `_folder`."""
        own = self._folder(number, program)
        return sum((spent_in(folder) for folder in own.parent.glob(f"{number + 1}-*") if folder != own), Spending())

    def _compile(self, number: int, target: Target, program: Program | None, spent: Spending) -> CompileOutcome:
        parts, folder = self.parts, self._folder(number, program)
        self._begun[target.name] = folder
        request = parts.request(target, program, folder)

        def on_candidate(candidate: Candidate) -> None:
            best = best_so_far(folder, request.student) if candidate.best else None
            if best is not None:
                self._save(target.put_back(program, best), number + 1, lm=candidate.lm)
            self.watching.candidate(target.name, candidate)
            log_candidates(self.tracker, target.name, candidates_in(folder), several=len(parts.targets) > 1)

        share = _share(parts.budget, spent, len(parts.targets) - number)
        return compile_module(request, parts.optimizer, share, on_candidate=on_candidate)

    def _save(
        self,
        module: dspy.Module,
        begun: int,
        test: HeldOut | None = None,
        folder: Path | None = None,
        lm: str = "",
    ) -> None:
        """Save the program or judge so far, with the number of targets begun and the LM fine-tuned for it."""
        parts, config = self.parts, self.config
        judge, lms = parts.judge, parts.lm_settings
        about = CompiledAbout(
            metric=parts.objective(parts.targets[-1]).name,
            metric_options={m.name: with_fingerprints(m.name, m.options) for m in config.against if m.options},
            optimizer=parts.optimizer.name,
            optimizer_options=parts.optimizer.settings.model_dump(mode="json"),
            budget=config.budget.name,
            modules=tuple(target.name for target in parts.targets[:begun]) if config.modules else (),
            dataset=parts.dataset.name,
            dataset_fingerprint=parts.dataset.fingerprint,
            subset=config.dataset.subset or "",
            index="" if judge else parts.resources.index_of(config.program),
            seed=config.dataset.seed,
            lms={**lms, "task": {**lms["task"], "spec": lm}} if lm else lms,
        )
        if judge:
            about_judge = _ABOUT.dump_python(about, mode="json")
            save_judge(module, self._saved, about=about_judge, checks=self._checks(), redact=parts.redactor)
            return
        assert isinstance(module, Program), "targets but judges give programs"
        if test:
            about = replace(
                about,
                test_questions=parts.test_fingerprint,
                base=test.base,
                compiled=test.compiled,
                differences=test.changes,
                verdict=test.verdict,
                p=test.p,
                tests=test.tests,
            )
        save_compiled(
            module,
            folder or self._saved,
            about,
            reranker=parts.reranker,
            retriever=parts.resources.searched_by(config.program),
            bm25=bm25_of(config.program, parts.source),
            redact=parts.redactor,
        )

    def _checks(self) -> Sequence[JudgeCheck]:
        """Earlier checks of judges in this folder, with this LM or another."""
        try:
            before = SavedJudge.read(self._saved)
        except InputError:  # there is none yet
            return ()
        return before.checks

    def _check(self) -> JudgeCheck:
        config, dataset = self.config, self.parts.dataset
        return check_saved_judge(
            self._saved,
            {dataset.name: dataset},
            Scorer(config.lm.spec or default_spec(), with_cache(self.parts.lm)),
            CheckSettings(limit=config.test_limit, seed=config.seed, threads=config.threads),
            listener=self.watching.listener,
        )

    def _check_test(self) -> None:
        """Refuse a test that no verdict could come of, unless its size is set, before anything is paid."""
        parts, limit = self.parts, self.config.test_limit
        if parts.judge:
            examples = test_examples(parts.judge, parts.dataset, CheckSettings(limit=limit, seed=self.config.seed))
        else:
            examples = parts.test_examples
        if limit is None:
            check_test(examples, parts.dataset, "--test-limit")

    def _test(self, compiled: dspy.Module) -> HeldOut:
        base = self.parts.base
        changed = fingerprint(state_of(compiled)) != fingerprint(state_of(base)) or compiled.options != base.options
        weights = {m.name: m.weight for m in self.config.against}
        target = self.parts.targets[-1]
        metrics = [metric for metric, _ in self.parts.objective(target).metrics]
        measurable = measurable_by(metrics, self.parts.test_examples)
        if (metric := target.metric()) is not None:
            weights = {metric.name: 1.0}
            runs = [self._run_alone(BASE, base, target.base(base), metric)]
            runs += [self._run_alone(COMPILED, compiled, target.base(compiled), metric)] if changed else []
        else:
            runs = self._run_whole(changed)
        tested = {file.stem for file in (self.out / TEST).glob(f"{COMPILED}-*")}
        other = runs[1] if changed else None
        return held_out(runs[0], other, weights, measurable, self.config.seed, tests=max(1, len(tested)))

    def _run_alone(self, name: str, program: Program, module: dspy.Module, metric: Metric) -> Run:
        return run_alone(
            module,
            metric,
            self.parts.test_examples,
            lm=self.parts.lm,
            file=self.out / TEST / f"{name}-{fingerprint(state_of(program))}.jsonl",
            threads=self.config.threads,
            listener=self.watching.listener,
            name=name,
            redact=self.parts.redactor,
        )

    def _run_whole(self, changed: bool) -> list[Run]:
        programs = [self.config.program.model_copy(update={"name": BASE})]
        if changed:
            program = self.parts.resources.compiled_from(self.config.program, self._saved)
            programs.append(program.model_copy(update={"name": tested_as(self._saved)}))
        folder = self.out / TEST
        evaluation = self.config.test_of(*programs)
        metrics = self.parts.tested_by(self.watching.notice)
        runs = run_evaluation(
            evaluation.model_copy(update={"metrics": metrics}),
            folder,
            among={str(e.id) for e in self.parts.tested},
            resume=True,
            on_progress=self._show_test,
            on_notice=self.watching.notice,
        )
        finished = [evaluated.run for evaluated in runs]
        if changed and not all(run.values(TRUTH) for run in finished):
            self.watching.notice("truthfulness could be measured of no test question: the verdict does not go by it")
        return finished

    def _show_test(self, progress: Progress) -> None:
        name = COMPILED if progress.run.startswith(COMPILED) else BASE
        self.watching.test(replace(progress, run=name))


def _share(budget: Budget, spent: Spending, left: int) -> Budget:
    """A target's equal share of the budget that is left for it and the targets after it."""

    def part(limit: int | None, used: int) -> int | None:
        return None if limit is None else max(1, (limit - used) // left)

    return Budget(lm_calls=part(budget.lm_calls, spent.usage.lm_calls), tokens=part(budget.tokens, spent.tokens))
