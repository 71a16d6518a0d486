import json
import sqlite3
from collections import Counter

import optuna
import pytest
from optuna.trial import TrialState

from tests.optimizers.sweep.workers import kill_after, logged, start_worker
from tests.postgres import postgres_server
from typedrag.optimizers.sweep import SweepConfig, open_sweep
from typedrag.optimizers.sweep.study import STUDY

THREADS = 3


def work_and_kill(values, server, places, calls, trials):
    """A worker in each folder makes trials, and the first is killed: the others make all, each once.

    Returns the worker of each trial that ended.
    """
    server.seconds, log = 0.03, places[0].parent / "log"
    victim, *others = (start_worker(values, place, log) for place in places)
    kill_after(victim, server, calls)
    for worker in others:
        worker.join()
        assert worker.exitcode == 0
    with open_sweep(SweepConfig.model_validate(values), places[-1]) as sweep:
        ended = [json.dumps(t.params) for t in sweep.trials(TrialState.COMPLETE, TrialState.PRUNED)]
        assert not sweep.trials(TrialState.RUNNING, TrialState.WAITING)
    assert len(ended) == len(set(ended)) == trials
    asked = Counter(json.dumps(call.request) for call in server.calls)
    assert sum(n - 1 for n in asked.values()) <= THREADS  # what was under way when one was killed
    return [line["worker"] for line in logged(log)]


def test_workers_share_the_trials_and_one_that_is_killed_is_replaced_by_the_others(settings, server, tmp_path):
    values = settings(
        program={"program": "direct_lm"},
        knobs={"lm.temperature": [0, 0.2, 0.4, 0.6], "lm.top_p": [0.5, 0.9]},
        dataset={"limit": 5},
        threads=THREADS,
    )
    by_worker = Counter(work_and_kill(values, server, [tmp_path / "sweep"] * 3, 20, trials=8))
    assert sum(by_worker.values()) in (7, 8)  # a worker can be killed between ending a trial and telling of it
    assert len(by_worker) >= 2


def test_a_trial_whose_worker_was_killed_before_its_first_heartbeat_is_made_by_another(settings, tmp_path):
    values = settings(program={"program": "direct_lm"}, knobs={"lm.temperature": [0, 0.2]})
    with open_sweep(SweepConfig.model_validate(values), tmp_path / "sweep") as sweep:
        killed, begun = sweep.study.ask(), sweep.study.ask()  # neither beats, since nothing is optimized
        with sqlite3.connect(tmp_path / "sweep" / STUDY) as database:
            database.execute("UPDATE trials SET datetime_start = '2020-01-01' WHERE number = ?", (killed.number,))
        optuna.storages.fail_stale_trials(sweep.study)
        states = {trial.number: trial.state for trial in sweep.study.get_trials()}
    assert states == {0: TrialState.FAIL, begun.number: TrialState.RUNNING, 2: TrialState.WAITING}


@pytest.fixture(scope="module")
def url():
    with postgres_server() as found:
        yield found


def test_machines_share_trials_and_replies_and_a_killed_one_is_replaced(settings, server, url, tmp_path):
    """The study, and the LM's replies, are in a real PostgreSQL: the machines share no folder."""
    values = settings(
        program={"program": "direct_lm"},
        knobs={"lm.temperature": [0, 0.3, 0.6], "lm.top_p": [0.5, 0.9]},
        dataset={"limit": 5},
        threads=THREADS,
        heartbeat=1.0,
        storage=url,
    )
    assert len(work_and_kill(values, server, [tmp_path / "machine-0", tmp_path / "machine-1"], 15, trials=6)) >= 5
