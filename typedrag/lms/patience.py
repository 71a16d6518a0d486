"""How long the LMs of a process may take."""

from __future__ import annotations

from contextvars import ContextVar

timeout_given: ContextVar[float | None] = ContextVar("timeout_given", default=None)
"""Seconds that whoever runs the process gives each try of a call, whatever an LM's settings say."""
