"""The code that MLflow runs to load a compiled program as an agent; see `served_agent`."""

from mlflow.models import set_model

from typedrag.experiments.tracking.served_agent import ServedAgent

set_model(ServedAgent())
