"""vLLM: a server that runs, or one that is started for this process and stopped with it.

A spec is `vllm:MODEL[+ADAPTER=PATH]` for a server, `vllm-offline:…` for an engine in this process; `@URL` may follow
any. A server for several processes is started by hand, and a router in front of several servers is one server here.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from typedrag.core.errors import InputError, LMUnavailable, path_error
from typedrag.core.proxies import http_client
from typedrag.lms.models import cache_dir
from typedrag.lms.specs import VLLMSpec

logger = logging.getLogger(__name__)

DEFAULT = "http://localhost:8000/v1"  # the address that `vllm serve` has by default
OPTIONS = "TYPEDRAG_VLLM_OPTIONS"  # the variable with options of `vllm serve`
START_SECONDS = 3600.0  # seconds that a server may take to start; it may have to fetch its weights
_ALWAYS = ("--enable-prompt-tokens-details",)
"""Options that are always given. Prefix caching and structured outputs are on by default."""
_STOP_SECONDS = 30.0
_NOTICE_EVERY = 10.0
_LAST_LINES = 12
_PR_SET_PDEATHSIG = 1


class NoServer(LMUnavailable):
    """No server answers at an address, or it serves other models."""


def served_models(api_base: str, api_key: str, timeout: float = 10.0) -> list[str]:
    import httpx

    try:
        headers = {"Authorization": f"Bearer {api_key}"}
        with http_client(api_base, headers=headers, timeout=timeout) as client:
            reply = client.get(f"{api_base.rstrip('/')}/models")
        reply.raise_for_status()
        return [model["id"] for model in reply.json()["data"] or ()]
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403):
            raise LMUnavailable(f"the server at {api_base} refuses the key", "Set TYPEDRAG_API_KEY") from error
        reason = str(error).partition("\n")[0]
        raise NoServer(
            f"no vLLM server answers at {api_base} ({reason})",
            "Start one (vllm serve MODEL), or say where it is: --api-base URL or TYPEDRAG_API_BASE",
        ) from error


def given_options() -> list[str]:
    try:
        return shlex.split(os.environ.get(OPTIONS, ""))
    except ValueError as error:
        raise InputError(f"{OPTIONS} cannot be read: {error}", "Quote its values as a shell takes them") from error


def find_vllm() -> str | None:
    """The command `vllm`: of the path, else of the environment that typedrag runs in; None if there is none."""
    return shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))


class _Server(NamedTuple):
    process: subprocess.Popen[bytes]
    spec: VLLMSpec
    options: list[str]
    endpoint: tuple[str, str]
    models: list[str]


_servers: list[_Server] = []
_lock = threading.Lock()


def serve(spec: VLLMSpec) -> tuple[str, str]:
    """The address and the key of a server that is started for this process with the options of
    `TYPEDRAG_VLLM_OPTIONS`, unless it has one of this model."""
    options = given_options()
    with _lock:
        for server in _servers:
            same = not spec.adapter or spec == server.spec  # another adapter may have the same name
            serves = server.options == options and spec.name in server.models and same
            if serves and server.process.poll() is None:
                break
        else:
            _servers.append(server := _start(spec, options))
    return server.endpoint


def _start(spec: VLLMSpec, options: list[str]) -> _Server:
    executable = find_vllm()
    if executable is None:
        raise LMUnavailable(
            f"no server is up for '{spec.name}', and there is no command 'vllm' to start one",
            "Install it: pip install 'typedrag[vllm]', or say where a server is: --api-base URL or TYPEDRAG_API_BASE",
        )
    adapter = ["--enable-lora", "--lora-modules", f"{spec.adapter}={spec.path}"] if spec.adapter else []
    command = [executable, "serve", spec.model, *_ALWAYS, *adapter, *options]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    key = secrets.token_urlsafe(16)  # no web page in a browser can use it
    name = sha256(json.dumps(command).encode()).hexdigest()[:12]
    log = cache_dir() / "vllm" / f"{name}-{os.getpid()}.log"
    libc, started = ctypes.CDLL(None), Future[subprocess.Popen[bytes]]()

    def end_with_parent() -> None:  # however that ends, where the system can (Linux)
        with suppress(OSError, AttributeError):
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def run() -> None:
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--port", str(port)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "VLLM_API_KEY": key},  # as an option all users of the machine could read it
                    start_new_session=True,  # Ctrl-C is for this process alone
                    preexec_fn=end_with_parent,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(log.parent.glob("*.log"), key=lambda file: file.stat().st_mtime)[:-_LAST_LINES]:
            old.unlink(missing_ok=True)
        # Linux takes the end of the thread that has started it for that of the parent: this lives as long as the server
        threading.Thread(target=run, name="typedrag-vllm-server", daemon=True).start()
        process, owner = started.result(), os.getpid()
    except OSError as error:
        raise path_error(log.parent, error) from error
    atexit.register(lambda: _stop(process) if os.getpid() == owner else None)  # no child that is forked stops it
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/health", spec.model, process, log)
        endpoint = f"http://127.0.0.1:{port}/v1", key
        models = served_models(*endpoint)
        if spec.name not in models:
            served = f"It serves: {', '.join(models)}"
            raise LMUnavailable(f"vLLM started, but does not serve '{spec.name}'", f"{served}; look at {OPTIONS}")
    except BaseException:
        _stop(process)
        raise
    return _Server(process, spec, options, endpoint, models)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError, PermissionError):  # what is left of its processes
        os.killpg(process.pid, signal.SIGKILL)


def _wait_until_ready(health: str, model: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import httpx

    logger.info("vLLM starts with %s, which takes a minute or more; its log is %s", model, log)
    began = noticed = time.monotonic()
    while True:
        try:
            with http_client(health, timeout=5) as client:
                if client.get(health).is_success:
                    break
        except httpx.HTTPError:
            pass
        ended, now = process.poll() is not None, time.monotonic()
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        if ended:
            last = "\n".join(f"  {line[:300]}" for line in lines[-_LAST_LINES:]) or "  (it is empty)"
            raise LMUnavailable(f"vLLM did not start with '{model}'; its log, {log}, ends:\n{last}")
        if now > began + START_SECONDS:
            raise LMUnavailable(f"vLLM has not started within {START_SECONDS:.0f} s", f"Look at its log: {log}")
        if now > noticed + _NOTICE_EVERY:
            noticed = now
            logger.info("vLLM starts since %.0f s: %s", now - began, lines[-1][:200] if lines else "")
        time.sleep(0.2)
    logger.info("vLLM serves %s after %.0f s", model, time.monotonic() - began)
