"""An Optuna study that workers share: it chooses the next point, and keeps the trials' results.

Only one worker at a time chooses a point, and never one that was chosen before. A trial whose worker
died is failed, and its point waits to be taken up again. So the same trials come to an end, however
often a worker is killed.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Literal, cast

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState

from typedrag.errors import InputError
from typedrag.lms.cost import Spending
from typedrag.optimizers.sweep.config import ObjectiveConfig, SamplerConfig
from typedrag.optimizers.sweep.space import Point, Space, key_of
from typedrag.optimizers.sweep.storage import WORKER, Storage

IDENTITY, QUESTIONS, MLFLOW = "identity", "questions", "mlflow run"
"""Attributes of a study: the settings its trials depend on, the questions in their order, its run in MLflow."""
VALUES, SPENT, PROBLEM, RETRIES, TWICE = "values", "spent", "problem", "retries", "chosen twice"
"""Attributes of a trial: see `objectives.Values`; what was paid for it, see `spent_on`; why it was ended; the
number of the trial whose point it takes up again; and whether its point had been chosen before."""

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
Next = Trial | Literal["wait", "done"]
"""A trial; `wait` while trials of other workers may still be abandoned; `done` if nothing is left."""


class Study:
    """The trials of a sweep."""

    def __init__(
        self, storage: Storage, name: str, objectives: Sequence[ObjectiveConfig], space: Space, sampler: SamplerConfig
    ) -> None:
        self.storage = storage
        self.objectives = objectives
        self.space = space
        self._sampler = sampler
        with without_notices(), storage.alone():
            self.optuna = optuna.create_study(
                storage=storage.optuna,
                study_name=name,
                directions=[o.towards for o in objectives],
                load_if_exists=True,
            )
            if self.optuna.metric_names is None:
                self.optuna.set_metric_names([o.measure for o in objectives])

    def begin(self, identity: Mapping[str, Any], questions: Sequence[Sequence[str]], first: Point | None) -> None:
        """Begin the study, or join it if its trials depend on the same settings.

        Args:
            identity: The settings that trials depend on, as JSON values.
            questions: Id, type, subset and key (see `question_key`) of each question, in their order.
            first: The point to begin with, if any.

        Raises:
            InputError: If the study is of another sweep.
        """
        with self.storage.alone():
            held = self.optuna.user_attrs.get(IDENTITY)
            if held is None:
                self.optuna.set_user_attr(QUESTIONS, [list(q) for q in questions])
                if first is not None and not self.trials():
                    self.optuna.enqueue_trial(dict(first))
                self.optuna.set_user_attr(IDENTITY, dict(identity))  # last, since it marks the study as begun
                return
        changed = sorted(name for name in {**held, **identity} if held.get(name) != identity.get(name))
        if changed:
            raise InputError(
                f"study '{self.optuna.study_name}' was begun with another {', '.join(changed)}",
                "Give the sweep another --out, and in a shared --storage another name too, or take the change back",
            )

    def trials(self, states: tuple[TrialState, ...] | None = None) -> list[FrozenTrial]:
        """The trials, without those whose point was already chosen."""
        return [t for t in self.optuna.get_trials(deepcopy=False, states=states) if TWICE not in t.user_attrs]

    def next(self, limit: int) -> Next:
        """The next trial for this worker, up to `limit` of all workers; see `Next`."""
        with without_notices(), self.storage.alone():
            for abandoned in self.storage.abandoned(self.optuna):
                self._take_up(abandoned)
            if self.trials((TrialState.WAITING,)):
                return self._sign(self._ask())
            begun = self.trials((*ENDED, TrialState.RUNNING))
            trial = self._choose(begun) if len(begun) < limit else None
            if trial is not None:
                return self._sign(trial)
            return "wait" if self.trials((TrialState.RUNNING,)) else "done"

    def give_up(self, trial: Trial) -> None:
        """Leave a trial to the next worker, unless it has ended."""
        with self.storage.alone():
            frozen = self._frozen(trial)
            if not frozen.state.is_finished():
                self._take_up(frozen)

    def end(self, trial: Trial, values: Sequence[float], passed: Mapping[str, float]) -> None:
        """End a trial of this worker.

        Args:
            values: Values of the objectives; empty if it is pruned.
            passed: The excess over each constraint, by name.
        """
        try:
            for name, amount in passed.items():
                trial.set_constraint(name, amount)
            self.optuna.tell(trial, list(values) or None, None if values else TrialState.PRUNED)
        except (UpdateFinishedTrialError, ValueError):
            # this worker was silent for so long that another took up the trial
            if not self._frozen(trial).state.is_finished():
                raise

    @contextmanager
    def at_work(self, trial: Trial) -> Iterator[None]:
        """Show other workers, within the context, that the trial is being made; on an error, leave it to the next."""
        try:
            with self.storage.at_work(trial._trial_id):
                yield
        except BaseException:
            self.give_up(trial)
            raise

    def _ask(self) -> Trial:
        """Make a trial of the first waiting point, else of one that the sampler chooses."""
        return self.optuna.ask(dict(self.space.distributions))

    def _sign(self, trial: Trial) -> Trial:
        with self.storage.at_work(trial._trial_id):  # a first heartbeat, before the trial names its worker
            trial.set_user_attr(WORKER, self.storage.worker)
        return trial

    def _choose(self, begun: Sequence[FrozenTrial]) -> Trial | None:
        """Choose a trial of a new point; None if there is no point left."""
        keys = {key_of(trial.params) for trial in begun}
        if len(keys) >= self.space.size:
            return None
        # depends on neither kills nor points that were chosen twice
        seed = random.Random(f"{self._sampler.seed}:{len(begun)}").randrange(2**31)
        if self._sampler.name == "grid":
            points = self.space.shuffled(self._sampler.seed)
            point = next((p for p in points if key_of(p) not in keys), None)
        else:
            self.optuna.sampler = build_sampler(self._sampler, seed)
            trial = self._ask()
            if key_of(trial.params) not in keys:
                return trial
            trial.set_user_attr(TWICE, True)
            self.optuna.tell(trial, state=TrialState.FAIL)
            point = self.space.draw(random.Random(seed), keys)
        if point is None:
            return None
        self.optuna.enqueue_trial(point)
        return self._ask()

    def _take_up(self, trial: FrozenTrial) -> None:
        """Queue the point of a trial again, then fail the trial; if a kill comes between, the next worker fails it."""
        others = [t for t in self.trials() if t.number != trial.number and t.state != TrialState.FAIL]
        held = {key_of(_params_of(t)) for t in others}
        if trial.params.keys() == self.space.distributions.keys() and key_of(trial.params) not in held:
            self.optuna.enqueue_trial(trial.params, user_attrs={RETRIES: trial.number})
        self.optuna.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return self.storage.optuna.get_trial(trial._trial_id)


def _params_of(trial: FrozenTrial) -> Mapping[str, Any]:
    """The parameters of a trial; of a waiting one, those it will have."""
    return trial.params or trial.system_attrs.get("fixed_params", {})


def values_of_trial(trial: FrozenTrial) -> dict[str, list[float | None]]:
    """The values of a trial so far; see `objectives.Values`."""
    return cast(dict[str, list[float | None]], trial.user_attrs.get(VALUES, {}))


def spent_on(trial: FrozenTrial) -> Spending:
    """The spending on a trial so far; where prices were not yet kept, with all tokens as read."""
    amounts: dict[str, float] = trial.user_attrs.get(SPENT, {})
    calls = amounts.get("lm_calls", 0)
    before = {"lm_calls": 0, "prompt_tokens": amounts.get("tokens", 0), "completion_tokens": 0, "dollars": 0.0}
    return Spending.from_dict({**before, "unpriced": calls, **amounts})


def answered(trial: FrozenTrial) -> int:
    """The number of first questions that a trial has come to."""
    return max((len(column) for column in values_of_trial(trial).values()), default=0)


def unless_taken_up() -> AbstractContextManager[None]:
    """Ignore updates of a trial that another worker took up because this one was silent for too long."""
    return suppress(UpdateFinishedTrialError)


def note(trial: Trial, name: str, value: Any) -> None:
    """Set an attribute of a trial, unless another worker has taken it up."""
    with unless_taken_up():
        trial.set_user_attr(name, value)


def is_feasible(trial: FrozenTrial) -> bool:
    """True if a trial keeps to all constraints."""
    return all(amount <= 0 for amount in trial.constraints.values())


def build_sampler(config: SamplerConfig, seed: int) -> BaseSampler:
    """Build the sampler of this name, with the given seed instead of its own."""
    match config.name:
        case "random" | "grid":
            return optuna.samplers.RandomSampler(seed=seed)
        case "qmc":
            return optuna.samplers.QMCSampler(seed=config.seed, scramble=True, warn_asynchronous_seeding=False)
        case "nsga2":
            return optuna.samplers.NSGAIISampler(seed=seed)
        case "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=config.startup)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup)


@contextmanager
def without_notices() -> Iterator[None]:
    """Silence Optuna's notices of trials, and its warnings of experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
