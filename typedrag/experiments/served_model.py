"""The former home of `ServedProgram`: MLflow stored this path with programs registered by an earlier typedrag."""

from typedrag.experiments.tracking.served_model import ServedProgram

__all__ = ["ServedProgram"]
