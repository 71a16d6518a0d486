"""Sweeps: Optuna over the knobs of programs, and over the weights of sub-question coverage."""

from typedrag.optimizers.sweep.config import SweepConfig, WeightsConfig
from typedrag.optimizers.sweep.run import Sweep, SweepProgress, Swept, open_sweep, run_sweep, view_sweep

__all__ = ["Sweep", "SweepConfig", "SweepProgress", "Swept", "WeightsConfig", "open_sweep", "run_sweep", "view_sweep"]
