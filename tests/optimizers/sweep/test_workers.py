from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from optuna.trial import TrialState

from tests.lm_server import words
from tests.optimizers.sweep.workers import kill_after, logged, start_worker
from typedrag.optimizers.sweep import SweepConfig, open_sweep

KILLS, THREADS, QUESTIONS = 10, 3, 5


@pytest.fixture
def values(settings, server):
    """Ten trials of a sampler that learns, and prunes."""
    server.seconds = 0.01
    server.reply = lambda call: (
        {"answer": words(round(40 + 100 * call.request["temperature"]))} if "answer" in call.wanted else None
    )
    return settings(
        program={"program": "direct_lm"},
        knobs={"lm.temperature": {"low": 0.0, "high": 1.0}, "lm.top_p": [0.5, 0.9, 1.0]},
        sampler={"name": "tpe", "startup": 4},
        pruning={"enabled": True, "first": 2},
        stop={"trials": 10},
        dataset={"limit": QUESTIONS},
        threads=THREADS,
    )


def finished(values, out):
    """Point, state and values of all trials that came to an end, and the number of those that did not."""
    with open_sweep(SweepConfig.model_validate(values), out) as sweep:
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        trials = sweep.study.trials()
        found = sorted((json.dumps(t.params), t.state.name, t.values or []) for t in trials if t.state in ended)
        return found, sum(t.state in (TrialState.RUNNING, TrialState.WAITING) for t in trials)


def test_a_worker_that_is_killed_ten_times_leaves_the_same_trials(values, server, tmp_path):
    start_worker(values, tmp_path / "whole", tmp_path / "log").join()
    wanted, _ = finished(values, tmp_path / "whole")
    assert len({point for point, _, _ in wanted}) == len(wanted) == 10
    needed = len(server.calls)

    luck, begun = random.Random(5), len(server.calls)
    for _ in range(KILLS):
        worker = start_worker(values, tmp_path / "killed", tmp_path / "log")
        kill_after(worker, server, len(server.calls) + luck.randint(1, needed // 6))
    start_worker(values, tmp_path / "killed", tmp_path / "log").join()
    found, left = finished(values, tmp_path / "killed")
    assert found == wanted
    assert left == 0
    # nothing was paid for twice but what was under way when it was killed
    assert len(server.calls) - begun <= needed + KILLS * THREADS


def test_workers_share_the_trials_and_one_that_is_killed_is_replaced_by_the_others(values, server, tmp_path):
    values |= {"knobs": {"lm.temperature": [0, 0.2, 0.4, 0.6], "lm.top_p": [0.5, 0.9]}, "sampler": {"name": "grid"}}
    values |= {"pruning": {"enabled": False}}
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
