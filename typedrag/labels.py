"""The labels that a dataset has for the question that is being answered, for the conditions of an experiment.

An ideal context needs the gold passages of the question, an oracle its right class. Whoever asks a question of a
dataset does so within `labelled`. The labels travel in a context variable: programs have the question as their only
input, and nothing reads a label unless its condition was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_labels: ContextVar[Mapping[str, Any]] = ContextVar("labels")


@contextmanager
def labelled(labels: Mapping[str, Any]) -> Iterator[None]:
    """Answer a question within this context, and `label` gives its labels.

    Example:
        >>> with labelled({"subset": "multi-document"}):
        ...     label("subset")
        'multi-document'
        >>> label("subset")
    """
    token = _labels.set(labels)
    try:
        yield
    finally:
        _labels.reset(token)


def label(name: str) -> Any:
    """The label of this name of the question that is being answered; None without one."""
    return _labels.get({}).get(name)
