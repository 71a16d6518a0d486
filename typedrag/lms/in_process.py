"""LMs in this process: llama.cpp's server for GGUF files, and vLLM's engine without a server.

The server is an LM on a machine that has none. The engine is for evaluations, whose many threads fill its batches:
calls that are made at once are answered as one. A call is what it would be over HTTP: the same sampling, constrained by
the same JSON schemas.
"""

import asyncio
import logging
import os
import queue
import secrets
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dspy.lm15 import (
    ContextLengthError,
    InvalidRequestError,
    Request,
    Response,
    ServerError,
    response_from_openai_chat,
    response_to_events,
)

from typedrag.core.errors import InputError, LMUnavailable, first_line
from typedrag.core.extras import require
from typedrag.core.registry import NoDeepcopy
from typedrag.lms.specs import VLLMSpec
from typedrag.lms.vllm import OPTIONS, given_options

logger = logging.getLogger(__name__)

SLOTS = 4  # requests that are decoded together. On a CPU of a few cores more of them gain nothing.
CONTEXT_TOKENS = 16384  # tokens of context, shared by the requests in flight
PROMPTS_MIB = 1024
"""Memory for prompts that were read before, since later ones may begin alike; llama.cpp would take 8 GiB."""
LONGEST_REPETITION = 32
"""Tokens that an LM may repeat before repetition is penalized. Quotations are shorter; a small LM that repeats more
writes the same sentence until its tokens are used up."""
LOOKED_BACK = 512  # tokens back that are searched for a repetition
_GATHER_SECONDS = 0.02
"""Seconds in which further calls join a batch: a question's calls and those of other threads come nearly at once."""
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "max_tokens")


class Endpoint(NamedTuple):
    """An OpenAI-compatible server in this process, with as many `slots` as requests that it decodes together.

    It takes a control token in a text for the token itself, and has no option against it.
    """

    api_base: str
    api_key: str
    slots: threading.Semaphore
    control_tokens: tuple[str, ...] = ()


_servers: dict[Path, tuple[Any, Endpoint]] = {}
_lock = threading.Lock()


def serve_gguf(gguf: Path) -> Endpoint:
    """Load a GGUF file and serve it at an address of this machine, once per process and file.

    The key is new each time, so that no web page in a browser on this machine can use the LM.
    """
    gguf = gguf.resolve()
    with _lock:
        if gguf in _servers:
            return _servers[gguf][1]
        require("xllamacpp")
        import xllamacpp

        try:
            with gguf.open("rb") as file:
                is_gguf = file.read(4) == b"GGUF"
        except OSError:
            is_gguf = False
        if not is_gguf:
            raise LMUnavailable(f"{gguf} is not a GGUF file", "Name a .gguf file, or one of: typedrag models list")
        params, key = xllamacpp.CommonParams(), secrets.token_urlsafe(16)
        params.model.path = str(gguf)
        params.n_ctx = CONTEXT_TOKENS
        params.n_parallel = SLOTS
        params.kv_unified = True
        params.cache_ram_mib = PROMPTS_MIB
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cpus
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
        address = f"{server.listening_address}/v1"
        endpoint = Endpoint(address, key, threading.Semaphore(SLOTS), control_tokens(gguf))
        _servers[gguf] = server, endpoint
        return endpoint


_GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of its types of numbers
_GGUF_TEXT, _GGUF_ARRAY = 8, 9
_CONTROL = 3  # the type of a control token, in the vocabulary of a GGUF file


def control_tokens(gguf: Path) -> tuple[str, ...]:
    """The control tokens of a model, from the metadata at the beginning of its file."""
    with gguf.open("rb") as file:

        def number(form: str = "Q") -> int:
            return int(struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0])

        def value(kind: int) -> Any:
            if kind == _GGUF_TEXT:
                return file.read(number())
            if kind != _GGUF_ARRAY:
                return file.read(_GGUF_SIZES[kind])
            items, count = number("I"), number()
            return (
                file.read(count * _GGUF_SIZES[items]) if items in _GGUF_SIZES else [value(items) for _ in range(count)]
            )

        file.seek(16)  # after its mark, its version and the number of tensors
        metadata = {value(_GGUF_TEXT): value(number("I")) for _ in range(number())}
    tokens, types = metadata[b"tokenizer.ggml.tokens"], metadata.get(b"tokenizer.ggml.token_type", b"")
    kinds = struct.unpack(f"<{len(types) // 4}i", types)
    return tuple(t.decode("utf-8", "replace") for t, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL)


_Call = tuple[Request, Future[Response]]


class OfflineEngine(NoDeepcopy):
    """An engine of `dspy.LM` that gathers calls of a `vllm.LLM` into batches, all with the same adapter, if any."""

    supports_response_schema = True
    supports_function_calling = False
    supports_reasoning = False
    supported_params = frozenset((*_SAMPLING, "stop", "response_format", "logprobs", "top_logprobs"))

    def __init__(self, llm: Any, lora: Any = None) -> None:
        self._llm, self._lora = llm, lora
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self.awaited = _AwaitedEngine(self)
        threading.Thread(target=self._answer_all, name="typedrag-vllm", daemon=True).start()

    @property
    def control_tokens(self) -> tuple[str, ...]:
        return tuple(self._llm.get_tokenizer().all_special_tokens)

    def ask(self, request: Request) -> Future[Response]:
        reply: Future[Response] = Future()
        self._calls.put((request, reply))
        return reply

    def complete(self, request: Request) -> Response:
        return self.ask(request).result()

    def stream(self, request: Request) -> Iterator[Any]:
        yield from response_to_events(self.complete(request))

    def close(self) -> None:
        """Nothing: the weights stay until the process ends."""

    def _answer_all(self) -> None:
        while True:
            batch = [self._calls.get()]
            time.sleep(_GATHER_SECONDS)
            while not self._calls.empty():
                batch.append(self._calls.get())
            self._answer([call for call in batch if call[1].set_running_or_notify_cancel()])

    def _answer(self, batch: list[_Call]) -> None:
        if not batch:
            return
        requests = [request for request, _ in batch]
        try:  # vLLM refuses a batch before it answers any of it
            outputs = self._llm.chat(
                [_messages(request) for request in requests],
                [self._sampling(request) for request in requests],
                use_tqdm=False,
                lora_request=self._lora,
            )
            responses = [_response(*pair) for pair in zip(requests, outputs, strict=True)]
        except Exception as error:
            if len(batch) > 1:
                middle = len(batch) // 2  # one that is refused must not fail the others, nor part all of them
                self._answer(batch[:middle])
                self._answer(batch[middle:])
                return
            fault, kinds = ServerError, {kind.__name__ for kind in type(error).__mro__}
            if kinds & {"ValueError", "VLLMClientError"}:  # what vLLM refuses: the other in newer versions
                too_long = "maximum context length" in str(error) or "maximum model length" in str(error)
                fault = ContextLengthError if too_long else InvalidRequestError
            batch[0][1].set_exception(fault(first_line(error)))
            return
        for (_, reply), response in zip(batch, responses, strict=True):
            reply.set_result(response)

    def _sampling(self, request: Request) -> Any:
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams

        config = request.config
        sampling = {name: value for name in _SAMPLING if (value := getattr(config, name)) is not None}
        own = self._llm.get_default_sampling_params()  # those that the model's authors recommend, as over HTTP
        defaults = {name: getattr(own, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
        form = config.response_format or {}
        if form.get("type") == "json_schema":
            sampling["structured_outputs"] = StructuredOutputsParams(json=form["schema"])
        elif form:
            sampling["structured_outputs"] = StructuredOutputsParams(json_object=True)
        return SamplingParams(**{**defaults, **sampling}, stop=list(config.stop) or None, logprobs=config.logprobs)


class _AwaitedEngine(NoDeepcopy):
    """The same for an event loop."""

    def __init__(self, engine: OfflineEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        return await asyncio.wrap_future(self._engine.ask(request))

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        for event in response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        pass


@cache
def load_engine(spec: VLLMSpec) -> OfflineEngine:
    require("vllm")
    # vLLM logs to stdout, which is for answers
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs
    from vllm.lora.request import LoRARequest
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    adapter = ["--enable-lora"] if spec.adapter else []
    try:  # options of the server alone, such as --api-key, are passed over
        arguments, _ = parser.parse_known_args(["--model", spec.model, *adapter, *given_options()])
    except SystemExit as error:
        raise InputError(f"vLLM refuses an option in {OPTIONS}", "See: vllm serve --help=all") from error
    try:
        llm = LLM.from_engine_args(EngineArgs.from_cli_args(arguments))
    except Exception as error:  # of vLLM, torch, the hub or the model's own code
        raise LMUnavailable(
            f"vLLM cannot load '{spec.model}': {first_line(error)}", "VLLM_LOGGING_LEVEL=INFO shows more"
        ) from error
    return OfflineEngine(llm, LoRARequest(spec.adapter, 1, spec.path) if spec.adapter else None)


def _messages(request: Request) -> list[dict[str, str]]:
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(part.text for part in system)
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, *({"role": message.role, "content": message.text or ""} for message in request.messages)]


def _response(request: Request, output: Any) -> Response:
    def entry(number: int, ranked: dict[int, Any]) -> dict[str, Any]:
        return {"token": ranked[number].decoded_token or "", "logprob": max(ranked[number].logprob, -9999.0)}

    [written] = output.outputs
    prompt, completion = len(output.prompt_token_ids or ()), len(written.token_ids)
    message = {"role": "assistant", "content": written.text}
    choice: dict[str, Any] = {"index": 0, "finish_reason": written.finish_reason, "message": message}
    if written.logprobs is not None:
        tokens = []
        for token, ranked in zip(written.token_ids, written.logprobs, strict=True):
            best = sorted(ranked, key=lambda number: -ranked[number].logprob)[: request.config.logprobs or 0]
            tokens.append({**entry(token, ranked), "top_logprobs": [entry(number, ranked) for number in best]})
        choice["logprobs"] = {"content": tokens}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    body = {
        "id": output.request_id,
        "object": "chat.completion",
        "created": 0,
        "model": request.model,
        "choices": [choice],
        "usage": {**usage, "prompt_tokens_details": {"cached_tokens": output.num_cached_tokens or 0}},
    }
    return response_from_openai_chat(body, model=request.model)
