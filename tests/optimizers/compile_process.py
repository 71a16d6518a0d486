"""A compile in a process of its own, to be killed."""

from pathlib import Path
from typing import Any

from tests.lm_server import Call
from tests.optimizers.tiny import OPTIONS, Engine, brain, request_for
from typedrag.lms.lm import open_lm
from typedrag.optimizers.compile.optimize import CompileOutcome, compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer


def compile_by(name: str, api_base: str, folder: str) -> CompileOutcome:
    """Compile the tiny program with an optimizer, by an LM at this address."""
    lm = open_lm("vllm:stub", api_base=api_base)
    request = request_for(Path(folder), Engine(), task_lm=lm, threads=3)
    return compile_module(request, build_optimizer(name, OPTIONS[name]))


def run(name: str, api_base: str, folder: str) -> None:
    """The same, where nobody waits for what comes out."""
    compile_by(name, api_base, folder)


def reply(call: Call) -> dict[str, Any]:
    """What the server answers."""
    messages = call.request["messages"]
    schema = call.request["response_format"]["json_schema"]["schema"]
    demonstrations = (len(messages) - 2) // 2
    return brain(messages[0]["content"], messages[-1]["content"], demonstrations, list(call.wanted), schema)
