"""The models that run in this process: those of torch, found, loaded once and used by one thread at a time; and
logistic regressions, with weights in JSON beside the code that uses them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat

from typedrag.core.errors import RetrievalError, TypedRAGError, Unavailable, first_line
from typedrag.core.extras import import_extras
from typedrag.core.registry import NoDeepcopy
from typedrag.files.text_files import write_text
from typedrag.lms import models

T = TypeVar("T")


class LocalModel(NoDeepcopy, Generic[T]):
    """A model that is loaded at its first use; within `with`, one thread has it: transformers' tokenizers serve one."""

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
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def loading(
    what: str, hint: str = "Check the name and the network, or give a folder", error: type[Unavailable] = RetrievalError
) -> Iterator[None]:
    """Load a model of transformers within, without its progress bars; if it cannot be loaded, raise `error`."""
    try:
        with import_extras("sentence_transformers"):
            from transformers.utils import logging

            logging.disable_progress_bar()
            yield
    except TypedRAGError:
        raise
    except Exception as reason:  # the hub's client and transformers raise errors of many kinds
        raise error(f"{what} cannot be loaded: {first_line(reason)}", hint) from reason


class LogisticModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    intercept: FiniteFloat
    """The log odds where all features are at their means."""
    weights: dict[str, FiniteFloat]
    """The weight of each feature."""
    mean: dict[str, FiniteFloat] = {}
    """The mean of each feature, by default 0; also its value where it is NaN."""
    scale: dict[str, FiniteFloat] = {}
    """The divisor of each feature's distance from its mean, by default 1."""

    def probability(self, features: Mapping[str, float]) -> float:
        log_odds = self.intercept
        for name, weight in self.weights.items():
            if not math.isnan(features[name]):
                log_odds += weight * (features[name] - self.mean.get(name, 0.0)) / self.scale.get(name, 1.0)
        return 1 / (1 + math.exp(-log_odds))

    def save(self, path: Path) -> None:
        write_text(path, self.model_dump_json(indent=1, exclude_defaults=True) + "\n")

    @staticmethod
    @cache
    def load(path: Path) -> LogisticModel:
        return LogisticModel.model_validate_json(path.read_text("utf-8"))
