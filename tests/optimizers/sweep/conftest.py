import pytest
from optuna.trial import TrialState

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.lm_server import words
from typedrag.optimizers.sweep import SweepConfig, run_sweep

LOOSE = {"program": "rag", "options": {"score_cutoff": 0}}
"""A program that reads as many passages as it is told to."""


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
        return run_sweep(SweepConfig.model_validate(settings(**given)), tmp_path / out, watching=watching)

    return run


def long_where_few(call):
    """Answers from fewer passages are longer."""
    if "answer" not in call.wanted:
        return None
    passages = call.request["messages"][-1]["content"].count('"text"')
    return {"citations": [1], "answer": words(100 - 10 * passages)}


def points(swept):
    """The points of the trials that came to an end, whatever their order."""
    return sorted(tuple(t.params.values()) for t in swept.trials(TrialState.COMPLETE, TrialState.PRUNED))
