"""Evaluations by an LM of a server, as values of a config."""

from typing import Any

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.lm_server import LMServer


def evaluation_of(server: LMServer, **changes: Any) -> dict[str, Any]:
    """An evaluation of direct_lm by the metric `tiny`, untracked, if the changes say nothing else; those of a mapping
    are laid over it."""
    lm = {"spec": "vllm:stub", "api_base": server.api_base, "num_retries": 0}
    values: dict[str, Any] = {
        "programs": [{"program": "direct_lm"}], "dataset": {"name": "sample", "limit": 12}, "metrics": ["tiny"],
        "lm": lm, "scorer": lm, "threads": 4, "tracking": {"enabled": False},
    }  # fmt: skip
    for name, value in changes.items():
        held = values.get(name)
        values[name] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
    return values
