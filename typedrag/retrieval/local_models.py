"""Where the models of encoders and rerankers lie."""

from __future__ import annotations

from pathlib import Path

from typedrag.errors import RetrievalError
from typedrag.lms import models


def locate_model(name: str) -> str:
    """What to hand to sentence-transformers for a name that `typedrag models` knows, a folder, or one of the hub.

    Raises:
        RetrievalError: If it is a known model that has not been fetched.
    """
    if name in models.MODELS:
        model = models.MODELS[name]
        if not model.present:
            raise RetrievalError(
                f"the model '{name}' is not on this machine ({model.megabytes} MB)",
                f"Fetch it: typedrag models fetch {name}",
            )
        return str(model.path)
    return str(Path(name).expanduser())
