"""Runs: work on many items, whose results are kept as they come and never made twice."""

from typedrag.runs.folder import Contents, Result, RunFolder, Store, is_run, read_folder
from typedrag.runs.work import (
    AnyOf,
    Limits,
    Listener,
    MaxFailures,
    Outcome,
    Progress,
    Stages,
    Stopper,
    ignore_progress,
    work,
)

__all__ = [
    "AnyOf", "Contents", "Limits", "Listener", "MaxFailures", "Outcome", "Progress", "Result", "RunFolder", "Stages",
    "Stopper", "Store", "ignore_progress", "is_run", "read_folder", "work",
]  # fmt: skip
