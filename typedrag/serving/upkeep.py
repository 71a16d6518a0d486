"""Threads for a server's work besides answering: neither waits for the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="typedrag-upkeep")


async def aside(function: Callable[[], T]) -> T:
    """The result of a function run in a thread of upkeep; the server's end does not wait for it."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)
