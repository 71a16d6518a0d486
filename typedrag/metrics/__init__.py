"""Metrics: the arithmetic, pure and doctested, and the judges on top of it."""

from typedrag.metrics.judgments import Judgments
from typedrag.metrics.metric import Metric, Scored, build_metric, metric, metric_class, metric_names

__all__ = ["Judgments", "Metric", "Scored", "build_metric", "metric", "metric_class", "metric_names"]
