"""vLLM servers that are asked over HTTP: which models they serve, and which of several takes a call."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.request import getproxies_environment

from typedrag.errors import LMUnavailable
from typedrag.lms.vllm.spec import addresses

logger = logging.getLogger(__name__)

DEFAULT = "http://localhost:8000/v1"
"""The address that `vllm serve` has where it is told none."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ASK_AGAIN = 2.0
"""Seconds after which a server that was left out is asked again."""


class NoServer(LMUnavailable):
    """No server answers at an address, or it serves other models."""


def bypass_proxies() -> None:
    """Keep the environment's proxies out of calls to this machine: behind a proxy, `localhost` is another machine."""
    if not getproxies_environment():
        return
    for name in {"NO_PROXY", "no_proxy"} & os.environ.keys() or {"NO_PROXY"}:
        hosts = addresses(os.environ.get(name, ""))
        os.environ[name] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


def served_models(api_base: str, api_key: str, timeout: float = 10.0) -> list[str]:
    """The names of the models that a server serves.

    Raises:
        NoServer: If none answers.
        LMUnavailable: If it refuses the key.
    """
    import httpx

    bypass_proxies()
    try:
        headers = {"Authorization": f"Bearer {api_key}"}
        reply = httpx.get(f"{api_base.rstrip('/')}/models", headers=headers, timeout=timeout)
        reply.raise_for_status()
        return [model["id"] for model in reply.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403):
            raise LMUnavailable(f"the server at {api_base} refuses the key", "Set TYPEDRAG_API_KEY") from error
        reason = str(error).partition("\n")[0]
        raise NoServer(f"no vLLM server answers at {api_base} ({reason})") from error


def check_servers(api_base: str, api_key: str, model: str) -> None:
    """Check that each server of a list serves the model; one that does not answer is only warned of if others do.

    Raises:
        NoServer: If none answers.
        LMUnavailable: If one serves other models, or refuses the key.
    """
    absent: list[NoServer] = []
    for address in (servers := addresses(api_base)):
        try:
            served = served_models(address, api_key)
        except NoServer as fault:
            absent.append(fault)
            continue
        if model not in served:
            others = f"It serves: {', '.join(served) or 'nothing'}"
            raise NoServer(f"the server at {address} does not serve '{model}'", others)
    if len(absent) == len(servers):
        start = f"Start one (vllm serve {model}), or say where it is: --api-base URL or TYPEDRAG_API_BASE"
        problem = absent[0].problem if absent else "no address of a vLLM server is given"
        raise NoServer(problem, start) from (absent[0] if absent else None)
    for error in absent:
        logger.warning("%s; it is left out until it does", error.problem)


class Replicas:
    """Servers of one model: a call goes to the least busy one, and to none that does not answer.

    Args:
        servers: Their addresses.
        api_key: What they are asked with.
    """

    def __init__(self, servers: tuple[str, ...], api_key: str) -> None:
        self._api_key = api_key
        self._busy = dict.fromkeys(servers, 0)
        self._absent: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._busy)

    @contextmanager
    def least_busy(self) -> Iterator[str]:
        """The address for a call that is made within."""
        with self._lock:
            present = self._busy.keys() - self._absent or self._busy.keys()
            address = min((a for a in self._busy if a in present), key=self._busy.__getitem__)
            self._busy[address] += 1
        try:
            yield address
        finally:
            with self._lock:
                self._busy[address] -= 1

    def leave_out(self, address: str) -> bool:
        """Leave a server out until it answers again.

        Returns:
            True if there is another to go to.
        """
        with self._lock:
            known = address in self._absent
            self._absent.add(address)
            others = len(self._absent) < len(self._busy)
        if not known:
            logger.warning("the LM's server at %s fails; it is left out until it answers again", address)
            threading.Thread(target=self._take_back, args=(address,), daemon=True).start()
        return others

    def _take_back(self, address: str) -> None:
        answers = False
        while not answers:
            time.sleep(_ASK_AGAIN)
            try:
                answers = bool(served_models(address, self._api_key, timeout=_ASK_AGAIN))
            except LMUnavailable:
                continue
        with self._lock:
            self._absent.discard(address)
        logger.warning("the LM's server at %s answers again", address)


@cache
def replicas_at(api_base: str, api_key: str) -> Replicas | None:
    """The servers of a list with commas between, the same for all LMs of this process; None for a single one."""
    servers = tuple(addresses(api_base))
    return Replicas(servers, api_key) if len(servers) > 1 else None
