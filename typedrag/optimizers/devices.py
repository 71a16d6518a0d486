"""One process and one device for a training by transformers' Trainer."""

from __future__ import annotations

import os
from typing import Any

from typedrag.errors import InputError


def check_one_process() -> None:
    """Refuse to train in several processes at once, all of which would write the same files.

    Raises:
        InputError: If this is one of several, as `accelerate launch` and `torchrun` begin them.
    """
    count = int(os.environ.get("WORLD_SIZE") or 1)
    if count > 1:
        raise InputError(
            f"this is one of {count} processes, and a training takes one",
            "Begin it without accelerate launch or torchrun, or unset WORLD_SIZE",
        )


def keep_to_one_device(arguments: Any) -> Any:
    """The same `TrainingArguments`, for one device however many there are.

    On several the Trainer would enlarge each batch, and split it by rows, which tears pools apart.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else only the environment can say it, by CUDA_VISIBLE_DEVICES
    return arguments
