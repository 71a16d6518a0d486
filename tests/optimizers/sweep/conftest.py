import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from typedrag.optimizers.sweep import SweepConfig, SweepProgress, run_sweep


@pytest.fixture
def settings(server, sample_index):
    """A sweep over retrieval by the tiny metrics, if nothing else is said."""

    def make(**given):
        lm = {"spec": "vllm:stub", "api_base": server.api_base, "num_retries": 0}
        values = {
            "program": {"program": "rag"},
            "knobs": {"top_k": [1, 3, 5], "passage_words": [50, 200]},
            "objectives": ["length/score"],
            "sampler": {"name": "grid"},
            "pruning": {"enabled": False},
            "dataset": {"name": "sample", "split": "train", "limit": 6},
            "metrics": ["tiny", "length"],
            "lm": lm,
            "scorer": lm,
            "index": sample_index,
            "threads": 4,
            "heartbeat": 0.3,
            "tracking": {"enabled": False},
        }
        for name, value in given.items():
            held = values.get(name)
            merge = isinstance(held, dict) and isinstance(value, dict) and name != "knobs"
            values[name] = {**held, **value} if merge else value
        return values

    return make


@pytest.fixture
def sweep(settings, tmp_path):
    """Make a sweep and give what its worker left."""

    def run(out="sweep", *, watching=None, **given):
        config = SweepConfig.model_validate(settings(**given))
        return run_sweep(config, tmp_path / out, watching=watching or SweepProgress())

    return run


def points(swept, *states):
    """The points of the trials, whatever their order."""
    from optuna.trial import TrialState

    wanted = [TrialState[name] for name in states or ("COMPLETE", "PRUNED")]
    return sorted(tuple(t.params.values()) for t in swept.trials() if t.state in wanted)
