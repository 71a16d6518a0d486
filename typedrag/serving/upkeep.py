"""A server's work besides answering: threads of its own, and the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="typedrag-upkeep")


async def aside(function: Callable[[], T]) -> T:
    """The result of a function run in a thread of upkeep; the server's end does not wait for it."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)


async def drained(under_way: Callable[[], object], seconds: float) -> None:
    """Wait until nothing is under way, but no longer than so many seconds."""
    end = time.monotonic() + seconds
    while under_way() and time.monotonic() < end:
        await asyncio.sleep(0.05)
