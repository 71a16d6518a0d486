"""The specs of LMs: `embedded[:NAME|FILE.gguf]`, `vllm[-offline]:MODEL`, or a DSPy name. Nothing here imports DSPy."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from typedrag.core.errors import InputError, did_you_mean
from typedrag.files.text_files import hash_files

DEFAULT_SPEC = "embedded"
KINDS = ("vllm", "vllm-offline")  # what specs of vLLM begin with: a server, and this process
FORMS = (
    "embedded, embedded:NAME, embedded:FILE.gguf, vllm:MODEL, vllm-offline:MODEL, or a DSPy name such as "
    "openai/gpt-4o-mini"
)
_FORM = re.compile(r"(?P<model>.+?)(?:\+(?P<adapter>[\w.-]+)=(?P<path>.+))?", re.DOTALL)
_ADDRESSED = re.compile(r"(?P<spec>.+?)@(?P<api_base>https?://.*)", re.DOTALL)


def default_spec() -> str:
    """The default LM's spec: `TYPEDRAG_LM`, else `embedded`."""
    spec = os.environ.get("TYPEDRAG_LM") or DEFAULT_SPEC
    if split_address(spec)[1]:  # it has a variable of its own: runs record the spec
        raise InputError("TYPEDRAG_LM holds the address of a server", "Put it into TYPEDRAG_API_BASE")
    return spec


AdapterName = Literal["schema", "json", "chat"]
"""The form that keeps an LM to a signature's types: a JSON schema alone, a JSON schema with DSPy's
description of it, or a text template."""


class VLLMSpec(NamedTuple):
    """An LM of vLLM: a name of the hub or a folder, and perhaps a LoRA adapter, with its folder or name on the hub."""

    model: str
    adapter: str = ""
    path: str = ""

    @classmethod
    def parse(cls, spec: str) -> VLLMSpec:
        """The parts of a spec without an address, such as `vllm:org/model+cooking=org/adapter`."""
        kind, _, rest = spec.partition(":")
        if (match := _FORM.fullmatch(rest)) is None:
            raise InputError(f"the LM spec '{kind}:' names no model", f"Write {kind}:MODEL[+ADAPTER=PATH]")
        return cls(**match.groupdict(""))

    @property
    def name(self) -> str:
        return self.adapter or self.model

    def absolute(self) -> VLLMSpec:
        model, path = (str(Path(p).resolve()) if p and Path(p).is_dir() else p for p in (self.model, self.path))
        return self._replace(model=model, path=path)


def split_address(spec: str) -> tuple[str, str]:
    """A spec as runs and reports name it, and the address of its server; empty for none.

    Example:
        >>> split_address("vllm:org/model@http://a:8000/v1"), split_address("openai/gpt-4o-mini")
        (('vllm:org/model', 'http://a:8000/v1'), ('openai/gpt-4o-mini', ''))
    """
    match = _ADDRESSED.fullmatch(spec)
    return (match["spec"], match["api_base"]) if match else (spec, "")


def model_files(spec: str) -> dict[str, str]:
    """The digests of the folders and files that a model's spec names: another may be trained in its place."""
    kind, _, rest = spec.partition(":")
    names = re.split(r"\+[\w.-]+=", rest) if kind else []
    there = {name: path for name in names if name and (path := Path(name).expanduser()).exists()}
    return {n: _digest(p, max(f.stat().st_mtime_ns for f in (p, *p.rglob("*")))) for n, p in there.items()}


@cache
def _digest(path: Path, changed: int) -> str:
    return hash_files(path)


def lm_provider(spec: str) -> str:
    """The provider that serves a spec's LM: `vllm`, `embedded`, or what a DSPy name begins with."""
    kind = spec.partition(":")[0]
    return kind if kind in ("embedded", *KINDS) else spec.partition("/")[0]


def check_spec(spec: str) -> None:
    """Check that a spec has one of the forms, without opening its LM."""
    spec, _ = split_address(spec)
    kind = spec.partition(":")[0]
    if kind in KINDS:
        VLLMSpec.parse(spec)
    elif kind != "embedded" and "/" not in spec:
        raise InputError(f"'{spec}' is no LM spec", f"{did_you_mean(kind, ('embedded', *KINDS))}Write one of: {FORMS}")
