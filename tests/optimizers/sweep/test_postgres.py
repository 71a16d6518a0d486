"""Workers whose study, and whose LM replies, are in a real PostgreSQL: they share no folder."""

import json
from collections import Counter

import pytest

from tests.optimizers.sweep.test_workers import finished
from tests.optimizers.sweep.workers import kill_after, logged, start_worker
from tests.postgres import postgres_server

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
