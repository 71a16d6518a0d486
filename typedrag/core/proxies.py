"""The environment's proxies, which all clients obey alike: those of LMs, index servers, models and MLflow."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from typedrag.core.errors import Unavailable

if TYPE_CHECKING:
    import httpx

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def bypass_proxies() -> None:
    """Keep the environment's proxies out of calls to this machine: behind a proxy, `localhost` is another machine."""
    if not getproxies_environment():
        return
    for name in {"NO_PROXY", "no_proxy"} & os.environ.keys() or {"NO_PROXY"}:
        hosts = [host.strip() for host in os.environ.get(name, "").split(",") if host.strip()]
        if "*" not in hosts:
            os.environ[name] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


def find_proxy(url: str, *, package: str = "socksio", module: str = "") -> str:
    """The proxy before an HTTP address, empty if there is none; an address of this machine has none.

    Raises:
        Unavailable: If it is a SOCKS proxy, and the package that the address's client takes for these is missing.
    """
    bypass_proxies()
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not parts.scheme.startswith("http") or not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    if proxy.startswith("socks") and find_spec(module or package) is None:
        shown = proxy.rpartition("@")[2].rpartition("/")[2]  # without its password
        problem = f"the SOCKS proxy {shown} needs the package '{package}', which is not installed"
        raise Unavailable(problem, f"Install it: pip install {package}, or unset ALL_PROXY and the like")
    return proxy


def http_client(url: str, **settings: Any) -> httpx.Client:
    """A client for an address, by way of the proxy before it, if there is one."""
    import httpx

    return httpx.Client(transport=None if find_proxy(url) else httpx.HTTPTransport(), **settings)
