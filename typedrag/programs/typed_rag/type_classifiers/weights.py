"""Weights of small models as arrays in a file, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save_arrays` wrote, with real numbers at single precision."""
    with np.load(path, allow_pickle=False) as arrays:
        return {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, with real numbers at half precision."""
    small: dict[str, Any] = {n: a.astype(np.float16) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    np.savez_compressed(path, **small)


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The softmax over the last axis.

    Example:
        >>> softmax(np.log([1.0, 3.0])).round(2).tolist()
        [0.25, 0.75]
    """
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)
