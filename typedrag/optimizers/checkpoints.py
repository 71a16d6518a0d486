"""The checkpoints that transformers' Trainer leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


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
