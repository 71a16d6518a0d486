"""A llama.cpp server inside this process, for GGUF files: an LM on a machine that has none."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.errors import LMUnavailable
from typedrag.extras import require

logger = logging.getLogger(__name__)

SLOTS = 4
"""Requests that are decoded together. More gain nothing on a CPU of a few cores."""
CONTEXT_TOKENS = 16384
"""Shared by the requests in flight."""
LONGEST_REPETITION = 32
"""Tokens that an LM may write once more before they cost it: a quotation is shorter, and a small LM that goes
beyond it writes the same sentence until its tokens are used up."""
LOOKED_BACK = 512
"""Tokens among which a repetition is looked for."""


class Endpoint(NamedTuple):
    """Where an OpenAI-compatible server listens and the key that it wants."""

    api_base: str
    api_key: str


_servers: dict[Path, tuple[Any, Endpoint]] = {}
_lock = threading.Lock()


def serve(gguf: Path) -> Endpoint:
    """Load a GGUF file and open an address on this machine for it, once per process and file.

    The key is drawn anew each time, so that no web page that runs in a browser on this machine can
    use the LM.

    Raises:
        MissingExtra: If the package xllamacpp is absent.
        LMUnavailable: If the file is no model it can load.
    """
    gguf = gguf.resolve()
    with _lock:
        if gguf not in _servers:
            _servers[gguf] = _start(gguf)
        return _servers[gguf][1]


def is_served_at(api_base: str) -> bool:
    """Whether an address is one that `serve` has opened."""
    return any(endpoint.api_base == api_base for _, endpoint in list(_servers.values()))


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
    return server, Endpoint(f"{server.listening_address}/v1", key)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
