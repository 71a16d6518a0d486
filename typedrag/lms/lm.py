"""An LM from a spec: `embedded[:NAME|FILE.gguf|OWNER/REPO/FILE.gguf]`, `vllm[-offline]:MODEL`, or a DSPy name.

Programs never configure an LM; whoever runs them does:

    with use_lm(open_lm("embedded")):
        program(question="Why does bread rise?")
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal

import dspy
from dspy import lm15

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.proxies import bypass_proxies
from typedrag.files.text_files import hash_files
from typedrag.lms import in_process, models, vllm
from typedrag.lms.adapter import ChatAdapter, JSONAdapter, SchemaAdapter
from typedrag.lms.client import make_lm
from typedrag.lms.cost import read_prices, register_specs, track_calls
from typedrag.lms.replies import CALL_OBSERVER, SOURCE, lm_address, set_user_store
from typedrag.lms.specs import (
    DEFAULT_SPEC,
    KINDS,
    AdapterName,
    VLLMSpec,
    check_spec,
    default_spec,
    lm_provider,
    model_files,
    split_address,
)
from typedrag.lms.vllm import NoServer

logger = logging.getLogger(__name__)

DEFAULT_EMBEDDED = "qwen2.5-coder-1.5b"
_DEFAULT_SPECS = (DEFAULT_SPEC, f"{DEFAULT_SPEC}:{DEFAULT_EMBEDDED}")
TOKENS = 1024  # tokens that an LM may write in a call, unless its settings say otherwise
EMBEDDED_TOKENS = 512  # the same for embedded LMs: text that a small LM writes beyond it is mostly repetition
REASONING_TOKENS = 16_000  # the same for LMs that reason first, reasoning included: the least that DSPy allows them
TIMEOUT_SECONDS = {"embedded": 600.0, "reasoning": 300.0}
"""Seconds that a try of a call may take, by kind of LM: prompts queue for a CPU, and reasoning takes long."""
OTHER_TIMEOUT_SECONDS = 120.0  # the same for all other kinds

PROVIDER = "typedrag-local"  # DSPy's name for the provider of embedded LMs and of those on vLLM servers
_PUBLIC = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "seed")
_ADAPTERS: dict[str, type[dspy.Adapter]] = {"schema": SchemaAdapter, "json": JSONAdapter, "chat": ChatAdapter}
_ADAPTER = "typedrag_adapter"
ROLE = "typedrag_role"  # the attribute of an LM that names its `Role`
Role = Literal["LM", "scorer", "teacher LM", "prompt LM"]
"""The purpose of an LM: to answer, to judge, to make demonstrations, or to write instructions."""


def open_lm(
    spec: str | None = None,
    *,
    api_base: str | None = None,
    adapter: AdapterName | None = None,
    role: Role = "LM",
    **settings: Any,
) -> dspy.LM:
    """The LM that a spec names, ready to be called.

    Args:
        spec: See the module's first line; None means `default_spec()`. `@URL` may follow it, in the place of
            `api_base`.
        api_base: Address of an OpenAI-compatible server, such as `http://localhost:8000/v1`. For `vllm:` it defaults to
            `TYPEDRAG_API_BASE`; without it, the server at `localhost:8000` is asked, or one is started for this
            process.
        adapter: By default the one that suits the LM; see `choose_adapter`.
        role: The LM's purpose, which messages name it by.
        settings: Those of `dspy.LM`. The defaults are temperature 0 and `TOKENS`, or no temperature and
            `REASONING_TOKENS` for an LM that takes none; for `timeout` see `TIMEOUT_SECONDS`.

    Raises:
        InputError: If the spec has none of the forms, the LM takes no such temperature, `max_tokens` or `top_k`, or the
            user's table of prices cannot be read.
        LMUnavailable: If the model, the server or a package is missing; the message says how to
            get it.
    """
    set_user_store()
    bypass_proxies()
    read_prices()  # refused before a call that would be charged by them
    try:
        spec = spec or default_spec()
        lm = _open(spec, api_base, settings)
    except (InputError, LMUnavailable) as error:
        if role == "LM":
            raise
        flag = f"--{role.removesuffix(' LM')}-api-base"
        raise type(error)(f"{role}: {error.problem}", error.hint.replace("--api-base", flag)) from error
    named, _ = split_address(spec)
    register_specs(lm.model, _DEFAULT_SPECS if named in _DEFAULT_SPECS else (named,))
    setattr(lm, ROLE, role)
    if adapter is not None:
        setattr(lm, _ADAPTER, adapter)  # stored on the LM: programs and judges may each use another LM and adapter
    return lm


def check_lm(spec: str | None, role: Role = "LM") -> None:
    """Check a spec's form, its provider and its key, without opening its LM: before an index is opened."""
    check_spec(spec := spec or default_spec())
    name, _ = split_address(spec)
    if lm_provider(name) in ("embedded", *KINDS):
        return
    router = lm15.LMRouter()
    try:
        resolution = router.resolve_openai_chat(name)
        router.lm(f"{resolution.provider}:{resolution.model}")
    except lm15.MissingCredentialError as error:
        raise missing_key_error(f"{role} '{name}'", error.env_keys) from None
    except lm15.LM15Error:
        _check_provider(name, f"{role} '{name}'")


def _check_provider(name: str, lm: str) -> None:
    import litellm

    litellm.suppress_debug_info = True  # it prints advice to stdout
    try:
        litellm.get_llm_provider(name)
    except litellm.exceptions.BadRequestError:
        problem = f"there is no {lm}: no provider has this name"
        raise LMUnavailable(problem, "Write PROVIDER/MODEL as DSPy and LiteLLM know them") from None


def missing_key_error(lm: str, variables: Sequence[str]) -> LMUnavailable:
    return LMUnavailable(f"{' or '.join(variables)} is not set", f"Set it for {lm}: export {variables[0]}=…")


def _open(spec: str, api_base: str | None, settings: dict[str, Any]) -> dspy.LM:
    check_spec(spec)
    spec, own = split_address(spec)
    api_base = own or api_base
    kind, _, name = spec.partition(":")
    if kind == "vllm":
        api_base = api_base or os.environ.get("TYPEDRAG_API_BASE")
    if "," in (api_base or ""):
        raise InputError(
            f"'{spec}' has several addresses, and one server is asked",
            "Put a router in front of the servers, and name its address: docs/how-to/vllm.md",
        )
    reasons = kind != "embedded" and _is_reasoning(spec)
    timeout = TIMEOUT_SECONDS.get("reasoning" if reasons else kind, OTHER_TIMEOUT_SECONDS)
    if reasons:
        settings = {"max_tokens": REASONING_TOKENS, "timeout": timeout, **settings}
        temperature, most = settings.get("temperature"), settings["max_tokens"]
        if temperature not in (None, 1):
            problem = f"'{spec}' takes no temperature, and {temperature:g} is given"
            raise InputError(problem, "Leave the temperature out")
        if most is not None and most < REASONING_TOKENS:
            problem = f"'{spec}' reasons first and may write {REASONING_TOKENS:,} tokens at least; {most:,} are given"
            raise InputError(problem, "Raise max_tokens, or leave it out")
    else:
        tokens = EMBEDDED_TOKENS if kind == "embedded" else TOKENS
        settings = {"temperature": 0.0, "max_tokens": tokens, "timeout": timeout, **settings}
    if seconds := call_context().timeout:
        settings["timeout"] = seconds
    if settings["timeout"] is None:
        del settings["timeout"]
    if api_base and kind in ("embedded", "vllm-offline"):
        raise InputError(
            f"'{spec}' runs in this process, and not at {api_base}",
            "Leave --api-base out, or name the server's model: vllm:MODEL",
        )
    if kind == "embedded":
        gguf = locate_embedded(name or DEFAULT_EMBEDDED)
        endpoint = in_process.serve_gguf(gguf)
        return _local_lm(_model_name(gguf), {**endpoint._asdict(), **settings}, "embedded")
    if kind == "vllm":
        return _vllm_lm(spec, api_base, settings)
    if kind == "vllm-offline":
        parts = VLLMSpec.parse(spec).absolute()
        engine = settings["in_process"] = in_process.load_engine(parts)
        settings["control_tokens"] = engine.control_tokens
        return _local_lm(parts.name, settings, kind, *parts, vllm.given_options(), *model_files(spec).values())
    if api_base:  # of a server of the user's own, which may know more than the provider's
        settings["api_base"] = api_base
    lm = make_lm(spec, settings, takes_sampling=not reasons)
    setattr(lm, SOURCE, (spec, lm_address(spec, settings)))
    if settings.get("top_k") and not api_base and "top_k" not in lm.supported_params:
        raise InputError(f"'{spec}' takes no top_k", "Leave it out; embedded LMs and those of vLLM take one")
    return lm


@cache
def _is_reasoning(spec: str) -> bool:
    try:
        dspy.LM(spec, temperature=0.5, max_tokens=1)
    except dspy.LMConfigurationError:
        return True
    return False


def lm_identity(lm: dspy.LM) -> dict[str, Any]:
    return {"model": lm.model, **reply_settings(lm)}


def reply_settings(lm: dspy.LM) -> dict[str, Any]:
    """The settings of an LM that its replies depend on, without keys and addresses."""
    settings = {name: lm.kwargs[name] for name in _PUBLIC if lm.kwargs.get(name) is not None}
    adapter = getattr(lm, _ADAPTER, None)
    return {**settings, "adapter": adapter} if adapter else settings


@contextmanager
def use_lm(lm: dspy.LM) -> Iterator[None]:
    """Run programs with this LM and the adapter that suits it.

    An LM whose server constrains decoding by a JSON schema gets the signature's schema; another
    gets the chat adapter, which falls back to JSON when a reply cannot be parsed.
    """
    set_user_store()
    with dspy.context(lm=lm, adapter=choose_adapter(lm)):
        yield


def use_role_lm(spec: str) -> AbstractContextManager[None]:
    """Run a role of a program with an LM of its own, or with the LM in use if the spec is empty."""
    return use_lm(_open_once(spec)) if spec else nullcontext()


@cache
def _open_once(spec: str) -> dspy.LM:
    return track_calls(open_lm(spec))


def choose_adapter(lm: dspy.LM) -> dspy.Adapter:
    """The adapter that keeps an LM to a signature's types: the one that it was opened with, if any."""
    if adapter := getattr(lm, _ADAPTER, None):
        return _ADAPTERS[adapter]()
    return SchemaAdapter() if lm.supports_response_schema else ChatAdapter()


class PerLMAdapter(dspy.Adapter):
    """Leaves each call to the adapter that suits its LM, for optimizers, which switch between LMs."""

    def __call__(self, lm: dspy.LM, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return choose_adapter(lm)(lm, *args, **kwargs)

    async def acall(self, lm: dspy.LM, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return await choose_adapter(lm).acall(lm, *args, **kwargs)


def with_cache(lm: dspy.LM) -> dspy.LM:
    """A copy of an LM that a compile can change and resume with: its calls are charged, its replies kept."""
    copy = track_calls(lm.copy(cache=True))
    if CALL_OBSERVER not in copy.callbacks:
        copy.callbacks.append(CALL_OBSERVER)
    return copy


def _vllm_lm(written: str, api_base: str | None, settings: dict[str, Any]) -> dspy.LM:
    """The LM at this address, else where vLLM is by default, else of a server that is started."""
    spec = VLLMSpec.parse(written)
    base, key = api_base or vllm.DEFAULT, os.environ.get("TYPEDRAG_API_KEY") or "EMPTY"
    where: Any = lm_address("", {"api_base": base})
    try:
        if spec.name not in (served := vllm.served_models(base, key)):
            others = f"It serves: {', '.join(served) or 'nothing'}"
            raise NoServer(f"the server at {base} does not serve '{spec.name}'", others)
    except NoServer:
        if api_base:
            raise
        spec = spec.absolute()
        (base, key), where = vllm.serve(spec), vllm.given_options()
    source = ("vllm", *spec.absolute(), where, *model_files(written).values())
    return _local_lm(spec.name, {"api_base": base, "api_key": key, **settings}, *source)


def _local_lm(model: str, settings: dict[str, Any], *source: Any) -> dspy.LM:
    # DSPy decides by the model's name whether a server takes a JSON schema, and knows no local models. A declared
    # provider says so for all of them; declaring it again changes nothing.
    access = lm15.AccessPolicy(
        provider=PROVIDER,
        supports=lm15.EndpointSupport(complete=True, stream=True, models=True),
        auth_modes=("bearer",),
        base_url="http://localhost:8000/v1",
    )
    lm15.register_provider(
        lm15.ProviderDefinition.chat(access, compat=lm15.OpenAIChatCompat.preset("vllm"), placeholder_key="EMPTY"),
        supports=lm15.ModelSupport(response_schema=True, function_calling=False, reasoning=False),
    )
    lm = make_lm(f"{PROVIDER}/{model}", settings)
    setattr(lm, SOURCE, source)
    return lm


def locate_embedded(name: str) -> Path:
    """The file of an embedded model: of a known name, a path, or OWNER/REPO/FILE.gguf on the hub."""
    if name in models.MODELS:
        model = models.MODELS[name]
        if not model.file.endswith(".gguf"):
            raise InputError(f"'{name}' is a model for embeddings, not an LM", "See: typedrag models list")
        return model.require(LMUnavailable)
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if name.endswith(".gguf") and name.count("/") == 2 and not path.is_absolute():
        from huggingface_hub import hf_hub_download

        owner, repository, file = name.split("/")
        try:
            return Path(hf_hub_download(f"{owner}/{repository}", file))
        except Exception as error:  # the client raises errors of several libraries when it finds no network
            raise LMUnavailable(
                f"'{name}' could not be had from the hub ({type(error).__name__})",
                "Check the name and the network, or give the path of a .gguf file",
            ) from error
    known = ", ".join(n for n, m in models.MODELS.items() if m.file.endswith(".gguf"))
    raise LMUnavailable(
        f"no embedded model '{name}': neither a known name nor a file",
        f"Known names: {known}; or give the path of a .gguf file, or OWNER/REPO/FILE.gguf of the hub",
    )


@cache
def _model_name(gguf: Path) -> str:
    """The name by which replies and judgments are kept; other people's files may have the same file name."""
    if any(gguf == model.path for model in models.MODELS.values()):
        return gguf.stem
    return f"{gguf.stem}-{hash_files(gguf)[:8]}"
