"""The models that run in this process by torch: found, loaded once, and used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

from typedrag.core.errors import RetrievalError, TypedRAGError, Unavailable, first_line
from typedrag.core.extras import import_extras
from typedrag.core.registry import NoDeepcopy
from typedrag.lms import models

T = TypeVar("T")


class LocalModel(NoDeepcopy, Generic[T]):
    """A model that is loaded at its first use; within `with`, one thread has it: transformers' tokenizers serve one.

    Args:
        load: Loads it. If that fails, the next use tries again.

    Example:
        >>> double = LocalModel(lambda: lambda n: 2 * n)
        >>> with double as model:
        ...     model(21)
        42
    """

    def __init__(self, load: Callable[[], T]) -> None:
        self._load, self._lock = load, threading.Lock()

    def __enter__(self) -> T:
        self._lock.acquire()
        try:
            if not hasattr(self, "_model"):
                self._model = self._load()
        except BaseException:
            self._lock.release()
            raise
        return self._model

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def local_model(load: Callable[..., T]) -> Callable[..., LocalModel[T]]:
    """Decorator: a function that loads a model, as one that gives the `LocalModel` which all callers share."""
    shared: dict[Hashable, LocalModel[T]] = {}
    lock = threading.Lock()

    @wraps(load)
    def find(*arguments: Any) -> LocalModel[T]:
        with lock:
            if arguments not in shared:
                shared[arguments] = LocalModel(partial(load, *arguments))
            return shared[arguments]

    return find


def locate_model(name: str) -> str:
    """The name or path for sentence-transformers of a model that `typedrag models` knows, a folder, or a hub name."""
    if name in models.MODELS:
        return str(models.MODELS[name].require(RetrievalError))
    return str(Path(name).expanduser())


def accelerator() -> str:
    """The device for models: `cuda` where there is one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def loading(
    what: str, hint: str = "Check the name and the network, or give a folder", error: type[Unavailable] = RetrievalError
) -> Iterator[None]:
    """Load a model of transformers within, without its progress bars.

    Args:
        what: The model's name in the message.
        hint: The advice if it cannot be loaded.
        error: The class of the error then.
    """
    try:
        with import_extras("sentence_transformers"):
            from transformers.utils import logging

            logging.disable_progress_bar()
            yield
    except TypedRAGError:
        raise
    except Exception as reason:  # the hub's client and transformers raise errors of many kinds
        raise error(f"{what} cannot be loaded: {first_line(reason)}", hint) from reason
