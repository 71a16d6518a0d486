"""Shared parts of trainings by transformers' Trainer: one process, one device, whole checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from typedrag.errors import InputError


def check_one_process() -> None:
    """Refuse to train in several processes at once: all would write the same files.

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
    """Limit `TrainingArguments` to one device and return them.

    With several devices the Trainer enlarges each batch and splits it by rows, which tears pools apart.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)  # the only other way is CUDA_VISIBLE_DEVICES in the environment
    return arguments


def last_checkpoint(folder: Path) -> str | None:
    """The last complete checkpoint in a folder; None if there is none. Incomplete later ones are deleted.

    The Trainer finds checkpoints by their folders' names, which exist before they are filled; it writes the state last.
    """
    from transformers.trainer_utils import get_last_checkpoint

    while folder.is_dir() and (last := get_last_checkpoint(str(folder))):
        try:
            json.loads((Path(last) / "trainer_state.json").read_text("utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(last)
        else:
            return str(last)
    return None
