"""The Optuna study of a sweep, what trials note in it, and how they compare by the same questions."""

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import optuna
from optuna.exceptions import OptunaError
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import NullPool, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from typedrag.core.errors import InputError, Unavailable, first_line
from typedrag.experiments.compare import COSTS
from typedrag.experiments.results import Run
from typedrag.files.database import lock_database
from typedrag.files.locks import wait_for_lock
from typedrag.lms.cost import Spending
from typedrag.optimizers.sweep.config import ConstraintConfig, PruningConfig, SamplerConfig, SweepConfig
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.space import Space

STUDY = "study.sqlite"
IDENTITY, MLFLOW = "identity", "mlflow run"
"""Attributes of a study: the settings that its trials depend on, and its run in MLflow; the latter of a trial too."""
VALUES, SPENT, PROBLEM, DUPLICATE = "values", "spent", "problem", "duplicate"
"""Attributes of a trial: see `Values`; what was paid for it, see `sum_spending`; why it was pruned; and whether an
earlier trial has its parameters, so that it failed at once."""

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
BEGUN = (*ENDED, TrialState.RUNNING)


@contextmanager
def without_notices(warned: type[Warning] = Warning) -> Iterator[None]:
    """Silence Optuna's notices of trials, and warnings of this kind."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", warned)
            yield
    finally:
        optuna.logging.set_verbosity(before)


with without_notices():
    requeue = RetryHeartbeatStaleTrialCallback()
    """Queues the parameters of a failed trial again, with its attributes."""


@dataclass(frozen=True)
class Sweep:
    """A sweep as it stands."""

    parts: SweepResources
    study: optuna.Study
    questions: Mapping[str, Sequence[str]]
    stopped: str = ""  # the limit that has ended this worker, in words

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)

    @property
    def front(self) -> list[FrozenTrial]:
        """The trials that keep to the constraints and that no other dominates, the best at the first objective first;
        equally good ones are all there."""
        sign = self.parts.config.objectives[0].sign
        return sorted(self.study.best_trials, key=lambda trial: (-sign * trial.values[0], trial.number))


def database_url(storage: str) -> str:
    """The URL of a PostgreSQL database as SQLAlchemy reads it; an `InputError` if it is of something else."""
    scheme, separator, rest = storage.partition("://")
    if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise InputError("a study's storage is a PostgreSQL database", "Write postgresql://USER@HOST/NAME, or none")
    return f"postgresql+psycopg://{rest}"


@contextmanager
def wait_for_turn(config: SweepConfig, out: Path) -> Iterator[None]:
    with ExitStack() as held:
        if config.storage is None:
            held.enter_context(wait_for_lock(out / STUDY))
        else:
            try:
                held.enter_context(lock_database(create_engine(database_url(config.storage), poolclass=NullPool)))
            except SQLAlchemyError as error:
                raise _storage_error(error) from None
        yield


class _Storage(RDBStorage):
    """Optuna's storage, for which a running trial without any heartbeat is stale, too.

    A worker that is killed between the beginning of a trial and its first heartbeat leaves such a trial, and the other
    workers would wait for it without end.
    """

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        running = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        latest = datetime.now() - timedelta(seconds=self.grace_period or 0)
        begun = [trial._trial_id for trial in running if trial.datetime_start and trial.datetime_start < latest]
        stale = super()._get_stale_trial_ids(study_id)
        if not begun:  # this is asked before each trial and while a worker waits
            return stale
        with self.engine.connect() as connection:
            beating = set(connection.execute(text("SELECT trial_id FROM trial_heartbeats")).scalars())
        return [*stale, *(id_ for id_ in begun if id_ not in beating)]


class _GridSampler(optuna.samplers.BruteForceSampler):
    """Optuna's sampler of a grid, which would fail for good where a worker was killed between a trial's parameters."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(seed=seed)
        self._size = len(space.distributions)

    def _populate_tree(  # type: ignore[override]  # a static method there
        self, tree: Any, trials: list[FrozenTrial], params: dict[str, Any]
    ) -> None:
        # each killed trial is queued again
        whole = [trial for trial in trials if len(trial.params) == self._size or not trial.state.is_finished()]
        super()._populate_tree(tree, whole, params)


@contextmanager
def open_study(config: SweepConfig, out: Path) -> Iterator[optuna.Study]:
    """Open the study of a sweep, made if need be: in its folder, or in the PostgreSQL database that workers share."""
    if config.storage is None:
        options: dict[str, object] = {"connect_args": {"timeout": 60}}
        url = f"sqlite:///{(out / STUDY).resolve()}"
    else:
        url, options = database_url(config.storage), {"pool_pre_ping": True}
    seconds = max(1, round(config.heartbeat))
    try:
        with without_notices():
            storage = _Storage(
                url, options, heartbeat_interval=seconds, grace_period=3 * seconds,
                heartbeat_stale_trial_callback=requeue,
            )  # fmt: skip
    except Exception as error:  # SQLAlchemy, psycopg and Optuna each raise their own
        raise _storage_error(error) from None
    if config.storage is None:  # SQLite has no SELECT FOR UPDATE, without which two workers take the same waiting trial
        storage.remove_session()
        storage.engine.dispose()
        event.listen(storage.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with without_notices():
            study = optuna.create_study(
                storage=storage,
                study_name=config.name,
                directions=["maximize" if o.sign > 0 else "minimize" for o in config.objectives],
                load_if_exists=True,
            )
            if study.metric_names is None:
                study.set_metric_names([o.measure for o in config.objectives])
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _storage_error(error: Exception) -> Unavailable:
    cause = error.__cause__ if isinstance(error, OptunaError) and isinstance(error.__cause__, Exception) else error
    return Unavailable(f"the study's database cannot be used: {first_line(cause)}", "Is it running?")


def values_of_trial(trial: FrozenTrial) -> dict[str, list[float | None]]:
    return cast(dict[str, list[float | None]], trial.user_attrs.get(VALUES, {}))


def answered(trial: FrozenTrial) -> int:
    """The number of first questions that a trial has come to."""
    return max((len(column) for column in values_of_trial(trial).values()), default=0)


def sum_spending(*trials: FrozenTrial) -> Spending:
    """The spending on trials so far. What waits to be made again has the attributes of the trial that failed."""
    amounts = [t.user_attrs[SPENT] for t in trials if t.state != TrialState.WAITING and SPENT in t.user_attrs]
    return sum(map(Spending.from_dict, amounts), Spending())


def is_feasible(trial: FrozenTrial) -> bool:
    return all(amount <= 0 for amount in trial.constraints.values())


def build_sampler(config: SamplerConfig, space: Space, trials: Sequence[FrozenTrial]) -> BaseSampler:
    """The sampler of the next trial, whose seed depends on the trials before it, but not on those that were killed."""
    duplicates = [DUPLICATE in trial.user_attrs for trial in trials]
    number = sum(trial.state in BEGUN for trial in trials) + sum(duplicates)
    seed = random.Random(f"{config.seed}:{number}").randrange(2**31)
    with without_notices():
        if config.name == "grid" or (space.size < math.inf and duplicates and duplicates[-1]):
            return _GridSampler(space, seed)
        match config.name:
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "qmc":
                return optuna.samplers.QMCSampler(seed=config.seed, scramble=True, warn_asynchronous_seeding=False)
            case "nsga2":
                return optuna.samplers.NSGAIISampler(seed=seed)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed, n_startup_trials=config.startup)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup)


Values = Mapping[str, Sequence[float | None]]
"""By measure, a value for each question in the order of the sweep; None for a question without a value."""


def collect_values(run: Run, questions: Sequence[str]) -> dict[str, list[float | None]]:
    """All measures of a run, for these questions in their order."""
    columns = {}
    scores = [f"{metric}/score" for question in run.questions for metric in question.metrics]
    for measure in dict.fromkeys((*run.measures, *scores, *COSTS)):
        values = run.values(measure)
        columns[measure] = [values.get(question) for question in questions]
    return columns


def mean_value(values: Values, measure: str, first: int | None = None) -> float | None:
    """The mean of a measure over the first questions, by default all, that have a value; None if none has."""
    known = [value for value in list(values.get(measure, ()))[:first] if value is not None]
    return fmean(known) if known else None


def violations(constraints: Sequence[ConstraintConfig], values: Values, first: int | None = None) -> dict[str, float]:
    """The excess over each constraint as a share of its limit; 0 or less if the constraint is kept.

    Example:
        >>> violations([ConstraintConfig(measure="cost/tokens", at_most=100)], {"cost/tokens": [100.0, 200.0]})
        {'cost/tokens at most 100': 0.5}
    """
    amounts = {}
    for constraint in constraints:
        mean = mean_value(values, constraint.measure, first)
        limits = ((constraint.at_most, 1, "at most"), (constraint.at_least, -1, "at least"))
        for limit, sign, words in limits:
            if limit is not None:
                excess = 1.0 if mean is None else sign * (mean - limit) / (abs(limit) or 1.0)
                amounts[f"{constraint.measure} {words} {limit:g}"] = excess
    return amounts


def question_sets(questions: int, pruning: PruningConfig) -> list[int]:
    """The numbers of first questions after which a trial may be pruned; the last is all questions.

    Example:
        >>> question_sets(50, PruningConfig(first=8, growth=2))
        [8, 16, 32, 50]
        >>> question_sets(50, PruningConfig(enabled=False))
        [50]
    """
    sizes, size = [], pruning.first
    while pruning.enabled and size < questions:
        sizes.append(size)
        size *= pruning.growth
    return [*sizes, questions]


def is_behind(trial: Values, others: Sequence[Values], first: int, config: SweepConfig) -> bool:
    """True if so many others are better on the first questions that the trial is to be pruned.

    Of n trials that came so far, n / `growth` go on, but the first ones always do, since no trial waits for others
    (asynchronous successive halving, Li et al., 2020). Optuna's pruners know one objective alone: with several, a trial
    is behind those that dominate it, so that the Pareto front is always continued.

    Args:
        others: Values of the other trials that have answered as many questions, whatever their state.
    """

    def standing(values: Values) -> tuple[float, list[float]]:
        excess = sum(max(0.0, amount) for amount in violations(config.constraints, values, first).values())
        means = [(o.sign, mean_value(values, o.measure, first)) for o in config.objectives]
        return round(excess, 12), [float("-inf") if m is None else round(sign * m, 12) for sign, m in means]

    excess, own = standing(trial)
    better = sum(
        other_excess < excess or (other_excess == excess and dominates(other, own))
        for other_excess, other in map(standing, others)
    )
    return better >= max(1, (len(others) + 1) // config.pruning.growth)


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """True if one is as good at every objective and better at some."""
    return all(a >= b for a, b in zip(one, other, strict=True)) and one != other
