"""A vLLM server that is started on this machine, shared by the processes that want the same one.

Each process that uses it holds a lock until it ends, and a process beside it, the `keeper`, stops the server when
nobody does. The server's address, its key and its log lie in the folder `vllm` of the cache folder.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO

from typedrag.errors import InputError, LMUnavailable, unusable
from typedrag.files.locks import turn_at
from typedrag.lms.embedded import Endpoint
from typedrag.lms.models import cache_dir
from typedrag.lms.vllm.servers import served_models
from typedrag.lms.vllm.spec import VLLMSpec

logger = logging.getLogger(__name__)

OPTIONS = "TYPEDRAG_VLLM_OPTIONS"
"""The variable with options of `vllm serve`."""
ALWAYS = ("--enable-prompt-tokens-details",)
"""Options that are always given. Prefix caching and structured outputs are on where vLLM is told nothing."""
START_SECONDS = 3600.0
"""Seconds that a server may take to start; it may have to fetch its weights."""
_TELL_EVERY = 10.0
_LAST_LINES = 12
_USERS, _STATE, _LOG = "users", "server.json", "vllm.log"


@dataclass(frozen=True)
class _Server:
    """The record of a server for its users: its command, its address, and what it serves.

    Attributes:
        adapter: The base and the adapter that it was started for, by place: other ones may have the same name.
    """

    host: str
    options: list[str]
    api_base: str
    api_key: str
    models: list[str] = field(default_factory=list)
    adapter: list[str] = field(default_factory=list)

    def serves(self, spec: VLLMSpec) -> bool:
        return spec.name in self.models and (not spec.adapter or self.adapter == _adapter_of(spec))

    def answers(self) -> bool:
        try:
            return bool(served_models(self.api_base, self.api_key))
        except LMUnavailable:
            return False


_used: dict[Path, IO[bytes]] = {}
"""The locks of the servers that this process uses, by their folders."""
_keepers: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


def serve(spec: VLLMSpec) -> Endpoint:
    """Use the server of this machine that serves a model with the options of `TYPEDRAG_VLLM_OPTIONS`, or start it.

    Raises:
        InputError: If the options cannot be read, or the cache folder not be written to.
        LMUnavailable: If there is no command `vllm`, or the server does not start.
    """
    options = given_options()
    folder = cache_dir() / "vllm"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock, turn_at(folder / "start", lambda: logger.info("another process starts vLLM; waiting for it")):
            server = _shared(folder, spec, options) or _started(folder, spec, options)
    except OSError as error:
        raise unusable(folder, error) from error
    return Endpoint(server.api_base, server.api_key)


def given_options() -> list[str]:
    """The options in `TYPEDRAG_VLLM_OPTIONS`.

    Raises:
        InputError: If a quotation in it has no end.
    """
    try:
        return shlex.split(os.environ.get(OPTIONS, ""))
    except ValueError as error:
        raise InputError(f"{OPTIONS} cannot be read: {error}", "Quote its values as a shell takes them") from error


def find_vllm() -> str | None:
    """The command `vllm`: of the path, else of the environment that typedrag runs in; None if there is none."""
    return shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))


def _adapter_of(spec: VLLMSpec) -> list[str]:
    return [spec.model, spec.lora_module] if spec.adapter else []


def _shared(folder: Path, spec: VLLMSpec, options: list[str]) -> _Server | None:
    """The running server that serves an LM with these options, if any; this process is one of its users then."""
    for state in folder.glob(f"*/{_STATE}"):
        try:
            server = _Server(**json.loads(state.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if (server.host, server.options) != (platform.node(), options) or not server.serves(spec):
            continue
        lock = _used.get(state.parent) or _lock_as_user(state.parent)  # waits if the server is being stopped
        if server.answers():
            _used[state.parent] = lock
            return server
        lock.close()
        _used.pop(state.parent, None)
    return None


def _started(folder: Path, spec: VLLMSpec, options: list[str]) -> _Server:
    executable = find_vllm()
    if executable is None:
        raise LMUnavailable(
            f"no server is up for '{spec.name}', and there is no command 'vllm' to start one",
            "Install it: pip install 'typedrag[vllm]', or say where a server is: --api-base URL or TYPEDRAG_API_BASE",
        )
    adapter = ["--enable-lora", "--lora-modules", spec.lora_module] if spec.adapter else []
    command = [executable, "serve", spec.model, *ALWAYS, *adapter, *options]
    place = folder / sha256(json.dumps([platform.node(), command]).encode()).hexdigest()[:12]
    place.mkdir(mode=0o700, exist_ok=True)
    address, key = f"127.0.0.1:{_free_port()}", secrets.token_urlsafe(16)  # no web page in a browser can use it
    lock = _lock_as_user(place)
    try:
        host, _, port = address.partition(":")
        keeper = _keep(place, [*command, "--host", host, "--port", port], key)
        _wait_until_it_answers(f"http://{address}/health", spec.model, keeper, place / _LOG)
        server = _Server(platform.node(), options, f"http://{address}/v1", key, adapter=_adapter_of(spec))
        server.models.extend(served_models(server.api_base, key))
        if spec.name not in server.models:
            served = f"It serves: {', '.join(server.models)}"
            raise LMUnavailable(f"vLLM started, but does not serve '{spec.name}'", f"{served}; look at {OPTIONS}")
        _write_privately(place / _STATE, json.dumps(asdict(server)))
    except BaseException:
        lock.close()  # the keeper then stops the server
        raise
    _used[place] = lock
    return server


def _lock_as_user(place: Path) -> IO[bytes]:
    import fcntl  # not on Windows, where vLLM does not run either

    file = (place / _USERS).open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _keep(place: Path, command: list[str], key: str) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("keeper.py")
    with (place / _LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", script, place / _USERS, place / _STATE, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "VLLM_API_KEY": key},  # as an option all users of the machine could read it
            start_new_session=True,  # Ctrl-C is for this process alone
        )
    _keepers.append(process)
    return process


def _wait_until_it_answers(health: str, model: str, keeper: subprocess.Popen[bytes], log: Path) -> None:
    import httpx

    logger.info("vLLM starts with %s, which takes a minute or more; its log is %s", model, log)
    began = noticed = time.monotonic()
    while True:
        try:
            if httpx.get(health, timeout=5).is_success:
                break
        except httpx.HTTPError:
            pass
        ended = keeper.poll() is not None
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        if ended:
            raise LMUnavailable(f"vLLM did not start with '{model}'; its log, {log}, ends:\n{_last_of(lines)}")
        now = time.monotonic()
        if now > began + START_SECONDS:
            raise LMUnavailable(f"vLLM has not started within {START_SECONDS:.0f} s", f"Look at its log: {log}")
        if now > noticed + _TELL_EVERY:
            noticed = now
            logger.info("vLLM starts since %.0f s: %s", now - began, lines[-1][:200] if lines else "")
        time.sleep(0.2)
    logger.info("vLLM serves %s after %.0f s", model, time.monotonic() - began)


def _last_of(lines: list[str]) -> str:
    return "\n".join(f"  {line[:300]}" for line in lines[-_LAST_LINES:]) or "  (it is empty)"


def _write_privately(file: Path, text: str) -> None:
    with open(file, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as opened:
        opened.write(text)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
