"""The experiments of a table, the values of its cells in their results, and what they will take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from typedrag.core.errors import InputError, names_hint
from typedrag.core.records import Estimate
from typedrag.datasets.dataset import SPLITS
from typedrag.datasets.richrag import read_pools
from typedrag.experiments.config import CapsConfig, DatasetConfig, EvaluationConfig
from typedrag.experiments.config_file import find_variables, merge_settings, validate_settings, with_settings
from typedrag.experiments.cost import SAMPLE, estimate_cost
from typedrag.experiments.evaluate import run_evaluation
from typedrag.experiments.judges.pairwise import PairwiseComparison, compare_pairwise
from typedrag.experiments.question_typing import infer_type
from typedrag.experiments.resources import Resources, load_configured, open_metered
from typedrag.experiments.results import ANSWERS, QuestionResult, Run, SpendingRecords, read_records, spent_below
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.lms.trace import Stopwatch
from typedrag.metrics import Metric, Scored, mean_estimate
from typedrag.metrics.estimate import FEWEST_UNITS, percentiles
from typedrag.metrics.metric import NO_SCORER_HINT
from typedrag.optimizers.list_ranker.measures import pool_measures, rank_pool, utility_table
from typedrag.papers.config import CellRef, PaperTable, RankersConfig, lm_spec
from typedrag.retrieval import open_reranker
from typedrag.runs import Listener, Progress, ignore_progress, is_run
from typedrag.text.words import question_key, split_words

WIN_RATE, ROUTE, SECONDS, CUTOFF = "win-rate", "route/accuracy", "seconds", 10
_RESAMPLES = 300  # of measures over all answers, each of which is computed from all of them


@dataclass(frozen=True)
class Callbacks:
    progress: Callable[[Progress], None] = lambda progress: None
    notice: Callable[[str], None] = lambda notice: None
    listener: Listener = ignore_progress
    watch: Stopwatch = field(default_factory=Stopwatch)


class Results(NamedTuple):
    """The results of an experiment on n questions, pools or pairs: the value of a cell, or why it has none."""

    n: int
    value: Callable[[CellRef], Estimate | str]


def build_experiments(
    table: PaperTable, flags: Mapping[str, Any], settings: Iterable[str] = (), only: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """The settings of the experiments that a table's cells come from, by variant, with flags and settings laid over."""
    config, base = table.config, table.values[table.config.kind]
    if unknown := [name for name in only if name not in config.variants]:
        hint = names_hint("Variants", unknown[0], config.variants)
        raise InputError(f"{table.name} has no variant '{unknown[0]}'", hint)
    used = {config.cell(r, c).variant for r in config.rows for c in config.columns if not config.cell(r, c).lacks}
    chosen = [name for name in config.variants if name in (only or used)]
    variants = table.values.get("variants") or {"": {}}
    return {
        name: with_settings(merge_settings(merge_settings(base, variants[name] or {}), flags), settings)
        for name in chosen
    }


def required_variables(experiments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted(find_variables(dict(experiments)))


def missing_variables(
    table: PaperTable, experiments: Mapping[str, Mapping[str, Any]], values: Mapping[str, str]
) -> list[str]:
    """The variables that the experiments need and that are not set, each with what it stands for."""
    needs = table.config.needs
    return [f"{n} ({needs[n]})" if n in needs else n for n in required_variables(experiments) if n not in values]


def make_experiment(
    table: PaperTable, variant: str, settings: Mapping[str, Any], out: Path, account: CostTracker, hooks: Callbacks
) -> Results:
    """Make one of a table's experiments, or go on with it."""
    config, file = table.config, table.file
    cells = [where for r in config.rows for c in config.columns if (where := config.cell(r, c)).variant == variant]
    folder = out / variant if variant else out
    with track_cost(account):
        if config.kind == "evaluation":
            evaluation = validate_settings(EvaluationConfig, "papers", settings, file)
            spent = spent_below(out) + spent_below(folder).times(-1)
            caps = _left(evaluation.caps, spent, hooks.watch.seconds / 60)
            if caps is None:
                return Results(0, lambda where: "what may be spent was spent before it")
            evaluation = evaluation.model_copy(update={"caps": caps})
            return _evaluate(evaluation, folder, out / REPLIES, cells, hooks, plain=config.plain_judge)
        if config.kind == "rankers":
            rankers = validate_settings(RankersConfig, "papers", settings, file)
            return _rank(rankers, {w.k or CUTOFF for w in cells})
        return _count(validate_settings(DatasetConfig, "papers", settings, file))


def _left(caps: CapsConfig, spent: Spending, minutes: float) -> CapsConfig | None:
    """The caps that a table's other experiments leave to one; None if they leave nothing."""
    amounts = {"tokens": spent.tokens, "lm_calls": spent.usage.lm_calls, "cost": spent.dollars, "minutes": minutes}
    left = {name: cap - amounts[name] for name in amounts if (cap := getattr(caps, name)) is not None}
    return None if any(amount <= 0 for amount in left.values()) else caps.model_copy(update=left)


def _evaluate(
    config: EvaluationConfig, folder: Path, replies: Path, cells: Sequence[CellRef], hooks: Callbacks, *, plain: bool
) -> Results:
    config = config.model_copy(update={"replies": config.replies or replies})  # variants share replies
    runs: dict[str, Run] = {}
    for evaluated in run_evaluation(config, folder, resume=True, on_progress=hooks.progress, on_notice=hooks.notice):
        runs[evaluated.run.name] = evaluated.run
        if evaluated.stopped:
            hooks.notice(f"{evaluated.run.name}: stopped: {evaluated.stopped}")
    parts = Resources(config, replies := config.replies or replies)
    compared = None
    if any(w.against for w in cells) and len(runs) > 1:
        if parts.scorer is None:
            raise InputError("a win rate needs a scorer", NO_SCORER_HINT)
        with use_reply_store(replies):
            listener, all_runs = hooks.listener, list(runs.values())
            compared = compare_pairwise(all_runs, parts.scorer, plain=plain, threads=config.threads, listener=listener)
    examples = parts.dataset.examples if any(w.aspects for w in cells) else ()
    aspects = {str(e.id): len(e.get("aspects") or ()) for e in examples}
    n = max((len(run.questions) for run in runs.values()), default=0)
    return Results(n, _Evaluated(runs, parts.metrics, compared, aspects).value)


@dataclass
class _Evaluated:
    """Runs of programs over the same questions, with the judge's preferences between them if they were compared, and
    the number of each question's sub-aspects, if a cell asks for it."""

    runs: Mapping[str, Run]
    metrics: Mapping[str, Metric]
    compared: PairwiseComparison | None
    aspects: Mapping[str, int]
    pooled: dict[tuple[object, ...], dict[str, Estimate]] = field(default_factory=dict)

    def value(self, where: CellRef) -> Estimate | str:
        """The mean over the run's questions, or the measure over all of them."""
        run = self.runs.get(where.run or next(iter(self.runs), ""))
        if run is None:
            return f"run '{where.run}' was not made"
        if where.measure == WIN_RATE:
            rates = self.compared.win_rates if self.compared else ()
            pair = (run.name, where.against or "")
            return next((r.rate for r in rates if (r.run, r.other) == pair and r.rate), "nothing was compared")
        least, most = where.aspects or (0, None)
        questions = []
        for q in run.questions:
            in_range = least <= (count := self.aspects.get(q.id, 0)) and (most is None or count <= most)
            if in_range and where.subset in (None, q.subset) and where.type in (None, q.question_type):
                questions.append(q)
        if not questions:
            return "no question of this group was drawn"
        if where.measure == ROUTE:
            right = [float(q.answer.route == q.subset) for q in questions if q.answer and q.answer.route]
            return mean_estimate(right) or "no answer names its route"
        measure = where.measure or ""
        if mean := run.mean(measure, {q.id for q in questions}):
            return mean
        metric, _, name = measure.partition("/")
        key = (run.name, where.subset, where.type, where.aspects, metric)
        if metric in self.metrics and key not in self.pooled:
            self.pooled[key] = _over_all(self.metrics[metric], [q for q in questions if metric in q.metrics])
        if pooled := self.pooled.get(key, {}).get(name):
            return pooled
        results = [q.metrics[metric] for q in questions if metric in q.metrics]
        reason = f"there is no '{measure}' of these answers" if results else "no answer was measured"
        return next((r.problem for r in results if r.problem), reason)


def _over_all(metric: Metric, questions: Sequence[QuestionResult]) -> dict[str, Estimate]:
    """The measures that a metric defines over all answers, with bootstrap intervals over questions."""
    import numpy as np

    scored = [(question_key(q.question), q.metrics[metric.name]) for q in questions]
    units: dict[str, list[Scored]] = {}
    for key, r in scored:
        if r.score is not None:
            units.setdefault(key, []).append(Scored(r.score, r.feedback, r.measures, r.details))
    if not units:
        return {}
    groups = list(units.values())
    values = metric.over_all([s for group in groups for s in group])
    if len(groups) < FEWEST_UNITS:
        return {name: Estimate(value, None, None, len(groups)) for name, value in values.items()}
    draws = np.random.default_rng(0).integers(len(groups), size=(_RESAMPLES, len(groups)))
    resampled = [metric.over_all([s for place in draw for s in groups[place]]) for draw in draws]
    estimates = {}
    for name, value in values.items():
        ends = np.quantile([r[name] for r in resampled if name in r], percentiles(len(groups)))
        estimates[name] = Estimate(value, float(ends[0]), float(ends[1]), len(groups))
    return estimates


def _rank(config: RankersConfig, cutoffs: set[int]) -> Results:
    asks = any(each.ranker.startswith("lm-") for each in config.rankers.values())
    read = cache(read_pools)  # most rankers have the same pools
    measures: dict[tuple[str, str], list[float]] = {}
    with use_lm(open_metered(config.lm)) if asks else nullcontext():
        for name, each in config.rankers.items():
            ranker = open_reranker(each.ranker)
            for whole in read(each.pools or config.pools)[: config.limit]:
                pool = whole.model_copy(update={"passages": whole.passages[: each.candidates]})
                watch = Stopwatch()
                ranking = rank_pool(ranker, pool, each.length)
                measures.setdefault((name, SECONDS), []).append(watch.seconds)
                table = utility_table(pool)
                for k in cutoffs:
                    for measure, share in pool_measures(pool, ranking, table, k).items():
                        measures.setdefault((name, f"{measure}@{k}"), []).append(share)

    def value(where: CellRef) -> Estimate | str:
        measure = SECONDS if where.measure == SECONDS else f"{where.measure}@{where.k or CUTOFF}"
        values = measures.get((where.run or "", measure), ())
        return mean_estimate(values) or f"the pools do not let '{measure}' of '{where.run}' be measured"

    return Results(max(map(len, measures.values()), default=0), value)


def _count(config: DatasetConfig) -> Results:
    """The questions of a dataset: their number, or the mean of words or things of each."""
    dataset = load_configured(config)
    examples = {part: dataset.split(part) for part in ("all", *SPLITS)}

    def value(where: CellRef) -> Estimate | str:
        part = where.part or "all"
        if part not in examples:
            return f"the dataset has no split '{part}'"
        of = [e for e in examples[part] if where.subset in (None, e.get("subset"))]
        of = [e for e in of if where.type is None or infer_type(e) == where.type]
        if where.measure == "questions":
            return Estimate(len(of), len(of), len(of), len(of))
        name, _, unit = (where.measure or "").rpartition("_")
        values = [e.get(name) or () for e in of]
        texts = [[v] if isinstance(v, str) else [getattr(one, "text", one) for one in v] for v in values]
        if unit == "count":
            return mean_estimate([float(len(t)) for t in texts if t]) or f"no question has {name}"
        counts = [fmean(len(split_words(text)) for text in t) for t in texts if t]
        return mean_estimate(counts) or f"no question has {name}"

    return Results(len(examples["all"]), value)


Experiments = Mapping[str, Mapping[str, Any]]  # by variant; see `build_experiments`
_SECONDS_A_CALL = 3.0
_IN_FLIGHT = 16  # LM calls at once of a server
_EMBEDDED_TOKENS_A_SECOND = 80.0  # of the 1.5B model on two cores, which gave 60 to 285 of them by machine


@dataclass(frozen=True)
class TableEstimate:
    """The estimate of what a table will take, without the comparisons of win rates: its questions, over all variants
    (None if their number is not known), LM calls and tokens (None if a run has not asked enough yet), and hours: at 3 s
    a call, 16 at once, or with an embedded LM at 80 tokens a second."""

    questions: int | None
    spent: Spending | None
    hours: float | None


def ask_samples(table: PaperTable, experiments: Experiments, out: Path, limit: int | None, hooks: Callbacks) -> None:
    """Ask the first three questions of each run that has asked fewer; the table then need not ask them again."""
    for variant, settings, program, records in _runs(table, experiments, out):
        if sum(role == ANSWERS for role, _ in records) < (few := min(SAMPLE, limit or SAMPLE)):
            sample = {**merge_settings(settings, {"dataset": {"limit": few}}), "programs": [program]}
            make_experiment(table, variant, sample, out, CostTracker(), hooks)


def estimate_table(table: PaperTable, experiments: Experiments, out: Path, limit: int | None = None) -> TableEstimate:
    """Estimate what a table's experiments will take, by what its runs in a folder have spent so far."""
    counts = {variant: table.config.question_count(variant, limit) for variant in experiments}
    total, seconds, known = Spending(), 0.0, None not in counts.values()
    for variant, settings, _, records in _runs(table, experiments, out):
        planned = counts[variant] or 0
        answers = [record for record in records if record[0] == ANSWERS]
        known &= len(answers) >= min(SAMPLE, planned)
        judgments = [record for record in records if record not in answers]
        for role, paid in (("lm", answers), ("scorer", judgments)):
            spent = estimate_cost(paid, planned)
            total += spent
            if lm_spec(settings.get(role)).startswith("embedded"):
                seconds += spent.tokens / _EMBEDDED_TOKENS_A_SECOND
            else:
                seconds += spent.usage.lm_calls * _SECONDS_A_CALL / _IN_FLIGHT
    questions = None if None in counts.values() else sum(filter(None, counts.values()))
    return TableEstimate(questions, total if known else None, seconds / 3600 if known else None)


def _runs(
    table: PaperTable, experiments: Experiments, out: Path
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any], SpendingRecords]]:
    """Yield variant, settings, program and what was spent so far of each run that asks an LM."""
    for variant, settings in experiments.items() if table.config.kind == "evaluation" else ():
        for program in settings.get("programs") or ():
            folder = out / variant / str(program.get("name", ""))
            yield variant, settings, program, read_records(folder)[1] if is_run(folder) else []
