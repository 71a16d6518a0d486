"""Sweeps: Optuna over the knobs of programs, and over the weights of sub-question coverage."""

from typedrag.optimizers.sweep.config import SweepConfig, WeightsConfig
from typedrag.optimizers.sweep.run import Sweep, Swept, Watching, open_sweep, run_sweep, view_sweep

__all__ = ["Sweep", "SweepConfig", "Swept", "Watching", "WeightsConfig", "open_sweep", "run_sweep", "view_sweep"]
