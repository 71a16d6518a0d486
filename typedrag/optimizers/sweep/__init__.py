"""Sweeps: Optuna over the knobs of programs and of the rating of sub-question coverage."""

from typedrag.core.extras import require

require("optuna")

from typedrag.optimizers.sweep.config import SweepConfig  # noqa: E402
from typedrag.optimizers.sweep.run import SweepProgress, open_sweep, run_sweep, view_sweep  # noqa: E402
from typedrag.optimizers.sweep.study import Sweep  # noqa: E402

__all__ = ["Sweep", "SweepConfig", "SweepProgress", "open_sweep", "run_sweep", "view_sweep"]
