"""Telling MLflow of a ranker's training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.tracking.tracked_run import TrackedRun, note, noted


class RankerTracker:
    """Tells MLflow of one training, or nothing if that is switched off.

    Args:
        config: Where and what.
        redact: Hides keys and addresses.
        on_notice: Told of what could not be tracked. Once the run is made, that is no reason to fail.
    """

    def __init__(self, config: TrackingConfig, redact: Callable[[str], str], on_notice: Callable[[str], None]) -> None:
        self._run = TrackedRun(config, redact, on_notice)

    def begin(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin MLflow's run, or continue the one that the training in this folder was tracked by before.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        self._run.begin(folder.resolve().name, settings, noted(folder), partial(note, folder))

    def measure(self, name: str, value: float, step: int) -> None:
        """Tell of a number."""
        self._tell(lambda: self._run.log({name: value}, step=step))

    def end(self, files: list[Path], *, stopped: bool) -> None:
        """Tell that it is over, and keep small files of it."""

        def tell() -> None:
            for file in files:
                self._run.client.log_artifact(self._run.id, str(file))
            self._run.end(stopped=stopped)

        self._tell(tell)

    def _tell(self, tell: Callable[[], object]) -> None:
        if self._run.id and not self._run.lost:
            with self._run.telling("of this training", ". It is told no more"):
                tell()
