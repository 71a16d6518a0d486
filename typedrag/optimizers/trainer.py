"""What trainings by transformers' Trainer have in common: one process, one device, and whole checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
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


def last_checkpoint(folder: Path) -> str | None:
    """The last one in a folder that was written whole; what a kill has left of later ones is deleted.

    The Trainer names a folder before it fills it, and goes by the name. Its state comes last.
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
