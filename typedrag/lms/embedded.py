"""A llama.cpp server inside this process, for GGUF files: an LM on a machine that has none."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.core.errors import LMUnavailable
from typedrag.core.extras import require

logger = logging.getLogger(__name__)

SLOTS = 4
"""Requests that are decoded together. On a CPU of a few cores more of them gain nothing."""
CONTEXT_TOKENS = 16384
"""Tokens of context, shared by the requests in flight."""
PROMPTS_MIB = 1024
"""Memory for prompts that were read before, since later ones may begin alike; llama.cpp would take 8 GiB."""
LONGEST_REPETITION = 32
"""Tokens that an LM may repeat before repetition is penalized. Quotations are shorter; a small LM that repeats more
writes the same sentence until its tokens are used up."""
LOOKED_BACK = 512
"""Tokens back that are searched for a repetition."""


class Endpoint(NamedTuple):
    """An OpenAI-compatible server.

    Attributes:
        slots: As many as the requests that it decodes together; None where others ask it, too.
    """

    api_base: str
    api_key: str
    slots: threading.Semaphore | None = None


_servers: dict[Path, tuple[Any, Endpoint]] = {}
_lock = threading.Lock()


def serve(gguf: Path) -> Endpoint:
    """Load a GGUF file and serve it at an address of this machine, once per process and file.

    The key is new each time, so that no web page in a browser on this machine can
    use the LM.
    """
    gguf = gguf.resolve()
    with _lock:
        if gguf not in _servers:
            _servers[gguf] = _start(gguf)
        return _servers[gguf][1]


def _start(gguf: Path) -> tuple[Any, Endpoint]:
    require("xllamacpp")
    import xllamacpp

    if not _is_gguf(gguf):
        raise LMUnavailable(f"{gguf} is not a GGUF file", "Name a .gguf file, or one of: typedrag models list")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    key = secrets.token_urlsafe(16)
    params = xllamacpp.CommonParams()
    params.model.path = str(gguf)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = SLOTS
    params.kv_unified = True
    params.cache_ram_mib = PROMPTS_MIB
    params.cpuparams.n_threads = cpus
    params.cpuparams_batch.n_threads = cpus
    params.api_keys = [key]
    params.sampling.dry_multiplier = 0.8
    params.sampling.dry_allowed_length = LONGEST_REPETITION
    params.sampling.dry_penalty_last_n = LOOKED_BACK
    params.warmup = False
    params.verbosity = -1
    logger.info("loading %s", gguf.name)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise LMUnavailable(f"{gguf} could not be loaded: {error}", "Is it a complete GGUF file?") from error
    return server, Endpoint(f"{server.listening_address}/v1", key, threading.Semaphore(SLOTS))


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
