"""The time that the LMs of a process may take."""

from __future__ import annotations

from contextvars import ContextVar

timeout_given: ContextVar[float | None] = ContextVar("timeout_given", default=None)
"""Seconds for each try of a call, set for the whole process; they override an LM's settings."""
