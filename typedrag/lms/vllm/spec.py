"""The parts of a spec: `vllm:MODEL[+ADAPTER=PATH]`, and the addresses that may follow any, `SPEC[@URL,URL]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from typedrag.errors import InputError

KINDS = ("vllm", "vllm-offline")
"""What specs of vLLM begin with: a server, and this process."""
_FORM = re.compile(r"(?P<model>.+?)(?:\+(?P<adapter>[\w.-]+)=(?P<path>.+))?", re.DOTALL)
_ADDRESSED = re.compile(r"(?P<spec>.+?)@(?P<api_base>https?://.*)", re.DOTALL)


class VLLMSpec(NamedTuple):
    """An LM of vLLM.

    Attributes:
        model: A name of the hub, or a folder.
        adapter: The name of a LoRA adapter on top of it; empty for none.
        path: The adapter's folder, or its name on the hub.
    """

    model: str
    adapter: str = ""
    path: str = ""

    @classmethod
    def read(cls, spec: str) -> VLLMSpec:
        """The parts of a spec without addresses.

        Raises:
            InputError: If it names no model.

        Example:
            >>> VLLMSpec.read("vllm:org/model+cooking=org/adapter")
            VLLMSpec(model='org/model', adapter='cooking', path='org/adapter')
        """
        kind, _, rest = spec.partition(":")
        match = _FORM.fullmatch(rest)
        if match is None:
            raise InputError(f"the LM spec '{kind}:' names no model", f"Write {kind}:MODEL[+ADAPTER=PATH]")
        return cls(**{name: part or "" for name, part in match.groupdict().items()})

    @property
    def name(self) -> str:
        """The name that a server has for it."""
        return self.adapter or self.model

    @property
    def lora_module(self) -> str:
        """The adapter as `vllm serve --lora-modules` takes it; empty for none."""
        return f"{self.adapter}={self.path}" if self.adapter else ""

    def located(self) -> VLLMSpec:
        """The same with the whole paths of folders, to load them: other processes have other working folders."""
        return self._replace(model=_located(self.model), path=_located(self.path))


def split_addresses(spec: str) -> tuple[str, str]:
    """A spec as runs and reports name it, and the addresses of its servers, with commas between; empty for none.

    Example:
        >>> split_addresses("vllm:org/model@http://a:8000/v1,http://b:8000/v1")
        ('vllm:org/model', 'http://a:8000/v1,http://b:8000/v1')
        >>> split_addresses("openai/gpt-4o-mini")
        ('openai/gpt-4o-mini', '')
    """
    match = _ADDRESSED.fullmatch(spec)
    return (match["spec"], match["api_base"]) if match else (spec, "")


def addresses(api_base: str) -> list[str]:
    """The addresses in a text with commas between.

    Example:
        >>> addresses("http://a:8000/v1, http://b:8000/v1")
        ['http://a:8000/v1', 'http://b:8000/v1']
    """
    return [address.strip() for address in api_base.split(",") if address.strip()]


def _located(place: str) -> str:
    return str(Path(place).resolve()) if place and Path(place).is_dir() else place
