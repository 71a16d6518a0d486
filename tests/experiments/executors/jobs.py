"""A job that kills its worker."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from typedrag.core.records import Usage
from typedrag.experiments.ray_pool import Worker
from typedrag.lms.cost import Spending, charge

SPENT = Spending(Usage(1, 10, 5))


class Deadly:
    """Spends something, and then dies."""

    def __call__(self, tables: object, worker: str) -> AbstractContextManager[Deadly]:
        return nullcontext(self)

    def die_once(self, file: Path) -> str:
        """Die unless the file is there."""
        charge(SPENT)
        if not file.exists():
            file.touch()
            self.die()
        return "alive"

    def die(self) -> None:
        """Die."""
        time.sleep(0.2)  # until what was spent has been told
        os._exit(1)


class SlowWorker(Worker):
    """Takes seconds to start, as a worker on a busy machine does."""

    def __init__(self, name: str) -> None:
        time.sleep(4)
        super().__init__(name)
