"""An LM whose replies follow from its prompts alone.

They are instances of the schema about the question; an answer from passages or from other answers says what the first
two say, choices are made by the prompt's checksum, and one of four booleans is false.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

from benchmarks.stub_server import Instances
from tests.optimizers.tiny import SchemaLM
from typedrag.lms.adapter import SchemaAdapter

_QUESTION = re.compile(r"\[\[ ## (?:question|remark) ## \]\]\n(.*?)(?:\n\n|\Z)", re.DOTALL)
_SENTENCE = re.compile(r'"(?:text|answer)": "(.*?[.!?])[ "]')
"""The first of a passage, or of an answer to a sub-query."""


class DeterministicEngine:
    """Attributes: requests: Those that were made, in order."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(json.dumps(_reply(request))),
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> DeterministicEngine:
        return self


@contextmanager
def deterministic_lm() -> Iterator[DeterministicEngine]:
    """Run programs within on it."""
    engine = DeterministicEngine()
    lm = SchemaLM("deterministic/lm", engine=engine, num_retries=0, cache=False, temperature=0.0)
    with dspy.context(lm=lm, adapter=SchemaAdapter()):
        yield engine


def _reply(request: Request) -> Any:
    prompt = request.messages[-1].text
    question = (_QUESTION.findall(prompt) or [""])[-1].strip()
    assert request.config.response_format
    schema = request.config.response_format["schema"]
    reply = Instances(schema, question, 2).make()
    for name, field in schema["properties"].items():
        lot = zlib.crc32(f"{name} {prompt}".encode())
        if field.get("type") == "boolean":
            reply[name] = lot % 4 > 0
        elif "enum" in field:
            reply[name] = field["enum"][lot % len(field["enum"])]
    if "answer" in reply:
        reply["answer"] = " ".join(_SENTENCE.findall(prompt)[:2]) or f"What is known of it: {question}"
    return reply
