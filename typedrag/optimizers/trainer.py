"""Trainings by transformers' Trainer: one process, one device, whole checkpoints."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from typedrag.core.errors import InputError


class StepLoss(NamedTuple):
    """The loss of a training step."""

    step: int
    steps: int
    loss: float


OnStep = Callable[[StepLoss], object]


def check_one_process() -> None:
    """Refuse to train in several processes at once: all would write the same files."""
    count = int(os.environ.get("WORLD_SIZE") or 1)
    if count > 1:
        raise InputError(
            f"this is one of {count} processes, and a training takes one",
            "Begin it without accelerate launch or torchrun, or unset WORLD_SIZE",
        )


def training_arguments(checkpoints: Path, **settings: Any) -> TrainingArguments:
    """The Trainer's arguments, with checkpoints in this folder, for one device."""
    common = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    arguments = TrainingArguments(str(checkpoints), **common, **settings)
    arguments._n_gpu = min(arguments.n_gpu, 1)  # the only other way is CUDA_VISIBLE_DEVICES in the environment
    return arguments


class QuietTrainer(Trainer):
    """A Trainer that does not print what it logs: stdout is for data."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.remove_callback(PrinterCallback)


def train(trainer: Trainer, *, resume_from: str | None, on_step: OnStep, minutes: float | None = None) -> bool:
    """Train to the end, or for so many minutes; returns True if these did not suffice, after a last checkpoint."""
    progress = _Progress(minutes, on_step)
    trainer.add_callback(progress)
    trainer.train(resume_from_checkpoint=resume_from)
    return progress.stopped


class _Progress(TrainerCallback):
    def __init__(self, minutes: float | None, on_step: OnStep) -> None:
        self._until = None if minutes is None else time.monotonic() + 60 * minutes
        self._on_step = on_step
        self.stopped = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self._on_step(StepLoss(state.global_step, state.max_steps, logs["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._until is not None and time.monotonic() > self._until and state.global_step < state.max_steps:
            self.stopped = True
            control.should_save = control.should_training_stop = True


def last_checkpoint(folder: Path) -> str | None:
    """The last complete checkpoint in a folder; None if there is none. Incomplete later ones are deleted."""
    while folder.is_dir() and (last := get_last_checkpoint(str(folder))):
        try:
            json.loads((Path(last) / "trainer_state.json").read_text("utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(last)
        else:
            return str(last)
    return None
