"""Finding and loading the models of encoders, rerankers and judges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typedrag.errors import RetrievalError, TypedRAGError, Unavailable, first_line
from typedrag.extras import importing
from typedrag.lms import models


def locate_model(name: str) -> str:
    """The name or path for sentence-transformers of a model that `typedrag models` knows, a folder, or a hub name.

    Raises:
        RetrievalError: If it is a known model that has not been fetched.
    """
    if name in models.MODELS:
        return str(models.MODELS[name].fetched(RetrievalError))
    return str(Path(name).expanduser())


@contextmanager
def loading(
    what: str, mend: str = "Check the name and the network, or give a folder", error: type[Unavailable] = RetrievalError
) -> Iterator[None]:
    """Load a model of transformers within, without its progress bars.

    Args:
        what: The model's name in the message.
        mend: The advice if it cannot be loaded.
        error: The class of the error then.
    """
    try:
        with importing("sentence_transformers"):
            from transformers.utils import logging

            logging.disable_progress_bar()
            yield
    except TypedRAGError:
        raise
    except Exception as reason:  # the hub's client and transformers raise errors of many kinds
        raise error(f"{what} cannot be loaded: {first_line(reason)}", mend) from reason
