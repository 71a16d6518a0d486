"""What a server does beside answering, in threads of its own: questions must not wait for it, nor it for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="typedrag-upkeep")


async def aside(function: Callable[[], T]) -> T:
    """What a function gives, while the event loop goes on. It is not waited for when the server ends."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)
