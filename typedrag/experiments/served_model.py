"""Where programs registered by an earlier typedrag look for their model: MLflow keeps the code that loads them."""

from typedrag.experiments.tracking.served_model import ServedProgram

__all__ = ["ServedProgram"]
