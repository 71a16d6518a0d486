"""Workers whose study, and whose LM replies, are in a real PostgreSQL: they share no folder."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from optuna.trial import TrialState

from tests.optimizers.sweep.test_workers import finished
from tests.optimizers.sweep.workers import kill_after, logged, start_worker
from tests.postgres import postgres_server
from typedrag.optimizers.sweep import SweepConfig, open_sweep
from typedrag.optimizers.sweep.storage import Database

THREADS = 3


@pytest.fixture(scope="module")
def url():
    with postgres_server() as found:
        yield found


@pytest.fixture
def values(settings, server, url):
    server.seconds = 0.03
    return settings(
        program={"program": "direct_lm"},
        knobs={"lm.temperature": [0, 0.3, 0.6], "lm.top_p": [0.5, 0.9]},
        dataset={"limit": 5},
        threads=THREADS,
        heartbeat=1.0,
        storage=url,
    )


def test_machines_share_trials_and_replies_and_a_killed_one_is_replaced(values, server, tmp_path):
    log = tmp_path / "log"
    victim = start_worker(values, tmp_path / "machine-0", log)
    other = start_worker(values, tmp_path / "machine-1", log)
    kill_after(victim, server, 15)
    other.join()
    assert other.exitcode == 0
    found, left = finished(values, tmp_path / "machine-2")
    assert (len(found), left) == (6, 0)
    assert all(n == 1 for n in Counter(point for point, _, _ in found).values())
    assert len(logged(log)) >= 5
    calls = Counter(json.dumps(call.request) for call in server.calls)
    assert sum(n - 1 for n in calls.values()) <= THREADS  # what was under way when one was killed


def test_points_under_way_are_not_chosen_again_unless_they_are_given_up(values, url, tmp_path):
    values |= {"name": "choosing"}
    with open_sweep(SweepConfig.model_validate(values), tmp_path / "a") as sweep:
        study = sweep.study
        trials = [study.next(6) for _ in range(6)]
        assert len({json.dumps(t.params) for t in trials}) == 6
        assert study.next(6) == "wait"
        study.give_up(trials[0])
        again = study.next(6)
        assert again.params == trials[0].params
        assert again.number != trials[0].number


def test_a_worker_that_is_not_heard_of_is_given_up(values, url, tmp_path):
    """Its trial has no heartbeat left, and another worker takes its point up."""
    values |= {"name": "silent"}
    with open_sweep(SweepConfig.model_validate(values), tmp_path / "a") as sweep:
        silent = sweep.study.next(6)
        other = Database(url.replace("postgresql://", "postgresql+psycopg://"), 1.0)
        with other.alone():
            assert other.abandoned(sweep.study.optuna) == []
        time.sleep(4.5)
        taken_up = sweep.study.next(6)
        assert taken_up.params == silent.params
        states = [t.state for t in sweep.study.optuna.get_trials()]
        assert states == [TrialState.FAIL, TrialState.RUNNING]
        sweep.study.end(silent, (), {})  # it comes back, and changes nothing
        assert [t.state for t in sweep.study.optuna.get_trials()] == states
        other.close()
