"""The code that MLflow runs to load a registered compiled program; see `served_model`."""

from mlflow.models import set_model

from typedrag.experiments.tracking.served_model import ServedProgram

set_model(ServedProgram())
