import pytest

from tests.lm_server import lm_server
from tests.ray_cluster import needs_ray, ray_cluster
from typedrag.optimizers.sweep import SweepConfig, SweepProgress, view_sweep
from typedrag.optimizers.sweep.run import run_sweep_on_ray

pytestmark = needs_ray


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(2) as started:
        yield started


def collect_values(server) -> dict:
    return {
        "program": {"program": "direct_lm"},
        "knobs": {"lm.temperature": [0.0, 0.5], "lm.top_p": [0.5, 1.0]},
        "objectives": ["defects/score", "cost/tokens"],
        "sampler": {"name": "grid"},
        "pruning": {"enabled": False},
        "dataset": {"name": "sample", "split": "train", "limit": 6},
        "metrics": ["defects"],
        "lm": {"spec": "vllm:stub", "api_base": server.api_base},
        "calls_in_flight": 4,
        "heartbeat": 1.0,
        "tracking": {"enabled": False},
    }


def test_workers_share_the_trials_of_a_sweep_and_take_up_those_of_one_that_is_lost(cluster, tmp_path):
    with lm_server(seconds=0.5) as server:
        config, told = SweepConfig.model_validate(collect_values(server)), []

        def on_trial(trial):
            if not told:
                cluster.workers()[0].kill()
            told.append(trial.number)

        swept = run_sweep_on_ray(
            config, tmp_path / "study", cluster.executor, 2, watching=SweepProgress(trial=on_trial)
        )
        assert swept.stopped == ""
        assert server.most_at_once <= 4 + 2
    with view_sweep(config, tmp_path / "study") as sweep:
        trials = sweep.trials()
    assert sorted(told) == sorted(trial.number for trial in trials if trial.state.name == "COMPLETE")
    points = [tuple(sorted(trial.params.items())) for trial in trials if trial.state.name == "COMPLETE"]
    assert len(points) == len(set(points)) == 4
