"""HANRAG's revelator as one model: fine-tuned in its five roles at once, run, and measured in each."""

from typedrag.optimizers.revelator.evaluation import RoleScore, evaluate_roles
from typedrag.optimizers.revelator.local_lm import open_local_lm
from typedrag.optimizers.revelator.training import Trained, TrainingSettings, train_revelator

__all__ = ["RoleScore", "Trained", "TrainingSettings", "evaluate_roles", "open_local_lm", "train_revelator"]
