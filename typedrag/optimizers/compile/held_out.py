"""Compare what was compiled with its base, on questions that were used neither to compile nor to choose it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dspy

from typedrag.core.errors import InputError
from typedrag.core.records import Answer, Estimate
from typedrag.core.redaction import Redactor
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import question_group, sample
from typedrag.experiments import results
from typedrag.experiments.compare import ALL, COSTS, Difference, RunComparison, compare
from typedrag.experiments.held_out import SCORE, TRUTH, check_enough, combine_verdicts, with_objective
from typedrag.experiments.judges.judging import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, add_check
from typedrag.experiments.question_typing import infer_type
from typedrag.experiments.results import ANSWERS, Run
from typedrag.lms.cost import CostTracker, track_calls, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.trace import Stopwatch
from typedrag.metrics.objective import measurable_ids
from typedrag.optimizers.compile.targets import JUDGES, Target
from typedrag.programs.artifact import dump_state, fingerprint
from typedrag.programs.compiled import Change, Verdict
from typedrag.runs import RunFolder, work
from typedrag.runs.work import Listener, ignore_progress


@dataclass(frozen=True)
class HeldOut:
    """The result of a compiled program on the test split."""

    # the comparison with the base; None if the compiled program does not differ from it
    comparison: RunComparison | None
    base: Mapping[str, Estimate]  # the base's means, by measure
    compiled: Mapping[str, Estimate]  # the compiled program's means, by measure
    tests: int = 1  # the number of compiled programs that were ever tested on these questions, including this one
    changes: Mapping[str, Change] = field(default_factory=dict)  # the differences that a compiled program is saved with

    @property
    def overall(self) -> Difference | None:
        """The difference in the objective, which decides; None if the objective was not measured of both."""
        return next((d for d in self.differences if d.measure == SCORE and d.stratum == ALL), None)

    @property
    def truth(self) -> Difference | None:
        return next((d for d in self.differences if d.measure == TRUTH and d.stratum == ALL), None)

    @property
    def p(self) -> float | None:
        """p-value of the test of the objective, corrected for the number of `tests`."""
        return self.overall.corrected_p if self.overall else None

    @property
    def differences(self) -> Sequence[Difference]:
        return self.comparison.differences if self.comparison else ()

    @property
    def about(self) -> dict[str, Any]:
        """The results that are saved with a compiled program or judge; see `CompiledAbout`."""
        means = {"base": self.base, "compiled": self.compiled, "differences": self.changes}
        return {**means, "verdict": self.verdict, "p": self.p, "tests": self.tests}

    @property
    def verdict(self) -> Verdict:
        """`better` or `worse` if that is more than chance, else empty; never `better` if less truthful."""
        return "unchanged" if self.comparison is None else combine_verdicts(self.overall, self.truth)


def held_out(
    base: Run,
    compiled: Run | None,
    weights: Mapping[str, float],
    measurable: Mapping[str, Collection[str]],
    seed: int = 0,
    *,
    tests: int = 1,
) -> HeldOut:
    """Compare the run of the base over the test split with that of the compiled program; None if they are the same."""
    named = [replace(base, name="base"), replace(compiled or base, name="compiled")]
    pair = [with_objective(run, weights, measurable) for run in named]
    comparison = compare(pair, by=("type",), seed=seed, force=True, decisive=SCORE, programs=tests)
    saved = {  # by type, only the objective and the costs
        d.measure if d.stratum == ALL else f"{d.measure}/{d.stratum.name}": d
        for d in comparison.differences
        if d.stratum == ALL or d.measure in (SCORE, *COSTS)
    }
    before = {name: d.baseline for name, d in saved.items() if d.baseline is not None}
    if compiled is None:
        return HeldOut(None, before, before)
    after = {name: d.other for name, d in saved.items() if d.other is not None}
    changes = {n: Change(**asdict(d.difference), p=d.p) for n, d in saved.items() if d.difference is not None}
    return HeldOut(comparison, before, after, tests, changes)


def check_test(examples: Sequence[dspy.Example], dataset: Dataset, flag: str) -> None:
    """Refuse a test on too few questions, before it is paid; the flag sets their number."""
    count = len({question_group(example) for example in examples})
    hint = f"Name a dataset with more, or test on these without a verdict: {flag} {len(examples)}"
    check_enough(count, f"split 'test' of dataset '{dataset.name}'", hint)


def held_out_alone(
    target: Target,
    base: dspy.Module,
    compiled: dspy.Module,
    examples: Sequence[dspy.Example],
    folder: Path,
    *,
    lm: dspy.LM,
    threads: int,
    seed: int = 0,
    tests: int = 1,
    listener: Listener = ignore_progress,
    redact: Redactor | None = None,
) -> HeldOut:
    """Compare compiled and base by the target's own metric, each run in a folder as an evaluation runs a program."""
    metric = target.test_metric
    assert metric is not None, "the target has labels of its own"
    by_id = {str(example.id): example for example in examples}
    questions = [
        results.PlannedQuestion(i, e.question, infer_type(e), str(e.get("subset") or "")) for i, e in by_id.items()
    ]

    def run(name: str, module: dspy.Module) -> Run:
        tested, predictions = target.tested(module), dict[str, dspy.Prediction]()

        def do(item: str, step: str, _: Any) -> Any:
            example, watch = by_id[item], Stopwatch()
            with track_cost(CostTracker()) as account:
                prediction = predictions.pop(item, None) or tested(**example.inputs())
            if step != ANSWERS:
                scored = metric(example, prediction)
                return results.metric_value(results.MetricResult(scored.score, measures={"score": scored.score}))
            predictions[item] = prediction
            values = {name: str(value) for name, value in prediction.items() if isinstance(value, str | int)}
            text = json.dumps(values, ensure_ascii=False)
            return Answer(example.question, text, seconds=watch.seconds, usage=account.spent.usage).to_dict()

        place = folder / f"{name}-{fingerprint(dump_state(module))}"
        settings = {"module": fingerprint(dump_state(tested)), "metric": metric.name}
        planned: dict[str, Any] = {"items": results.question_items(questions), "redact": redact or Redactor([])}
        with (
            RunFolder.open(place, settings, kind=results.KIND, resume=True, **planned) as opened,
            use_lm(track_calls(lm)),
            dspy.context(trace=None),
        ):
            steps = (ANSWERS, metric.name)
            work(by_id, do, opened.store, steps=steps, threads=threads, listener=listener, name=place.name)
        return results.read_run(place)

    before, after = run("base", base), run("compiled", compiled) if is_changed(base, compiled) else None
    return held_out(before, after, {metric.name: 1.0}, measurable_ids([metric], examples), seed, tests=tests)


def is_changed(base: dspy.Module, compiled: dspy.Module) -> bool:
    """True if a compile has changed the base: what its predictors say, or its options."""
    options = [getattr(module, "options", None) for module in (base, compiled)]
    return fingerprint(dump_state(base)) != fingerprint(dump_state(compiled)) or options[0] != options[1]


def check_saved_judge(
    folder: Path,
    datasets: Mapping[str, Dataset],
    scorer: Scorer,
    settings: CheckSettings | None = None,
    *,
    listener: Listener = ignore_progress,
) -> JudgeCheck:
    """Test the compiled judge in a folder with an LM, on the first dataset with its labels, and keep the result there.

    The folder is one that `save_judge` wrote; see `load_judge`.
    """
    saved, settings = SavedJudge.read(folder), settings or CheckSettings()
    target = JUDGES[saved.judge](**saved.options)
    dataset = next((datasets[name] for name in target.datasets if name in datasets), None)
    if dataset is None:
        problem = f"no labels are given for the {saved.judge} in {folder}"
        raise InputError(problem, f"Give {' or '.join(target.datasets)}")
    examples = target.test_examples(dataset)
    if settings.limit is None:
        check_test(examples, dataset, "--limit")
    with TemporaryDirectory() as runs:
        test = held_out_alone(
            target,
            target.student(),
            saved.build(),
            sample(examples, settings.limit or len(examples), settings.seed, infer_type),
            Path(runs),
            lm=scorer.lm,
            threads=settings.threads,
            seed=settings.seed,
            tests=saved.count_tests(scorer.lm.model, dataset),
            listener=lambda p: listener(replace(p, run=f"{p.run.partition('-')[0]} {target.name}, {scorer.name}")),
        )
    return keep_check(folder, test, scorer.lm.model, dataset)


def keep_check(folder: Path, test: HeldOut, scorer: str, dataset: Dataset) -> JudgeCheck:
    check = JudgeCheck(
        scorer=scorer,
        judge=SavedJudge.read(folder).fingerprint,
        dataset=dataset.name,
        dataset_fingerprint=dataset.fingerprint,
        base=test.base.get("objective/score"),
        compiled=test.compiled.get("objective/score"),
        difference=test.overall.difference if test.overall else None,
        verdict=test.verdict,
        p=test.p,
        tests=test.tests,
    )
    return add_check(folder, check)
