"""HANRAG's revelator as one model: fine-tuned in its five roles at once, run, and measured in each."""

from typedrag.core.extras import require

require("accelerate", "peft", "torch", "transformers")

from typedrag.optimizers.revelator.evaluation import RoleScore, evaluate_roles, open_local_lm  # noqa: E402
from typedrag.optimizers.revelator.training import Trained, TrainingSettings, train_revelator  # noqa: E402

__all__ = ["RoleScore", "Trained", "TrainingSettings", "evaluate_roles", "open_local_lm", "train_revelator"]
