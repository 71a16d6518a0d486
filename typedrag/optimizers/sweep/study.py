"""The Optuna study of a sweep, and what trials note in it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import optuna
from optuna.exceptions import OptunaError
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from typedrag.core.errors import InputError, Unavailable, first_line
from typedrag.files.database import lock_database
from typedrag.files.locks import wait_for_lock
from typedrag.lms.cost import Spending
from typedrag.optimizers.sweep.config import SamplerConfig, SweepConfig
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.space import Space

STUDY = "study.sqlite"
IDENTITY, MLFLOW = "identity", "mlflow run"
"""Attributes of a study: the settings that its trials depend on, and its run in MLflow; the latter of a trial too."""
VALUES, SPENT, PROBLEM, DUPLICATE = "values", "spent", "problem", "duplicate"
"""Attributes of a trial: see `pruning.Values`; what was paid for it, see `spent_on`; why it was pruned; and whether an
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
    """A sweep as it stands.

    Attributes:
        questions: The type, the subset and the key (see `question_key`) of each question by its id, in their order.
    """

    parts: SweepResources
    study: optuna.Study
    questions: Mapping[str, Sequence[str]]

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """The trials in these states, by default all."""
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
    """Let the workers of a sweep begin one after the other."""
    with ExitStack() as held:
        if config.storage is None:
            held.enter_context(wait_for_lock(out / STUDY))
        else:
            try:
                held.enter_context(lock_database(create_engine(database_url(config.storage), poolclass=NullPool)))
            except SQLAlchemyError as error:
                raise _storage_error(error) from None
        yield


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
            storage = RDBStorage(
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
                directions=[o.towards for o in config.objectives],
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
    """The values of a trial so far; see `pruning.Values`."""
    return cast(dict[str, list[float | None]], trial.user_attrs.get(VALUES, {}))


def answered(trial: FrozenTrial) -> int:
    """The number of first questions that a trial has come to."""
    return max((len(column) for column in values_of_trial(trial).values()), default=0)


def spent_on(*trials: FrozenTrial) -> Spending:
    """The spending on trials so far. What waits to be made again has the attributes of the trial that failed."""
    amounts = [t.user_attrs[SPENT] for t in trials if t.state != TrialState.WAITING and SPENT in t.user_attrs]
    return sum(map(Spending.from_dict, amounts), Spending())


def is_feasible(trial: FrozenTrial) -> bool:
    """True if a trial keeps to all constraints."""
    return all(amount <= 0 for amount in trial.constraints.values())


def sampler_of(config: SamplerConfig, space: Space, trials: Sequence[FrozenTrial]) -> BaseSampler:
    """The sampler of the next trial, whose seed depends on the trials before it, but not on those that were killed.

    Where a finite space has been sampled twice at the same place, it is gone through by what is left.
    """
    duplicates = [DUPLICATE in trial.user_attrs for trial in trials]
    number = sum(trial.state in BEGUN for trial in trials) + sum(duplicates)
    seed = random.Random(f"{config.seed}:{number}").randrange(2**31)
    with without_notices():
        if config.name == "grid" or (space.is_finite and duplicates and duplicates[-1]):
            return optuna.samplers.BruteForceSampler(seed=seed)
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
