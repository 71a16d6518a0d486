"""Runs: work on many items, whose results are kept as they come and never made twice."""

from typedrag.runs.folder import RunFolder, is_run, read_folder
from typedrag.runs.stop import AnyOf, Limits, MaxFailures, Progress, Stopper
from typedrag.runs.store import Contents, Result, Store
from typedrag.runs.work import Outcome, work

__all__ = [
    "AnyOf",
    "Contents",
    "Limits",
    "MaxFailures",
    "Outcome",
    "Progress",
    "Result",
    "RunFolder",
    "Stopper",
    "Store",
    "is_run",
    "read_folder",
    "work",
]
