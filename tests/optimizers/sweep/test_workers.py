import json
import sqlite3
from collections import Counter

import optuna
from optuna.trial import TrialState

from tests.optimizers.sweep.workers import kill_after, logged, start_worker
from typedrag.optimizers.sweep import SweepConfig, open_sweep
from typedrag.optimizers.sweep.study import STUDY

THREADS = 3


def finished(values, out):
    """Point, state and values of all trials that came to an end, and the number of those that did not."""
    with open_sweep(SweepConfig.model_validate(values), out) as sweep:
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        trials = sweep.trials()
        found = sorted((json.dumps(t.params), t.state.name, t.values or []) for t in trials if t.state in ended)
        return found, sum(t.state in (TrialState.RUNNING, TrialState.WAITING) for t in trials)


def test_workers_share_the_trials_and_one_that_is_killed_is_replaced_by_the_others(settings, server, tmp_path):
    values = settings(
        program={"program": "direct_lm"},
        knobs={"lm.temperature": [0, 0.2, 0.4, 0.6], "lm.top_p": [0.5, 0.9]},
        dataset={"limit": 5},
        threads=THREADS,
    )
    server.seconds = 0.03
    log = tmp_path / "log"
    victim, *others = (start_worker(values, tmp_path / "sweep", log) for _ in range(3))
    kill_after(victim, server, 20)
    for worker in others:
        worker.join()
        assert worker.exitcode == 0
    found, left = finished(values, tmp_path / "sweep")
    assert (len(found), left) == (8, 0)
    assert all(n == 1 for n in Counter(point for point, _, _ in found).values())
    by_worker = Counter(line["worker"] for line in logged(log))
    assert sum(by_worker.values()) in (7, 8)  # a worker can be killed between ending a trial and telling of it
    assert len(by_worker) >= 2
    calls = Counter(json.dumps(call.request) for call in server.calls)
    assert sum(n - 1 for n in calls.values()) <= THREADS


def test_a_trial_whose_worker_was_killed_before_its_first_heartbeat_is_made_by_another(settings, tmp_path):
    values = settings(program={"program": "direct_lm"}, knobs={"lm.temperature": [0, 0.2]})
    with open_sweep(SweepConfig.model_validate(values), tmp_path / "sweep") as sweep:
        killed, begun = sweep.study.ask(), sweep.study.ask()  # neither beats, since nothing is optimized
        with sqlite3.connect(tmp_path / "sweep" / STUDY) as database:
            database.execute("UPDATE trials SET datetime_start = '2020-01-01' WHERE number = ?", (killed.number,))
        optuna.storages.fail_stale_trials(sweep.study)
        states = {trial.number: trial.state for trial in sweep.study.get_trials()}
    assert states == {0: TrialState.FAIL, begun.number: TrialState.RUNNING, 2: TrialState.WAITING}
