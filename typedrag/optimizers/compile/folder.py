"""The folder of a compile: its identity, its lock, and the log of DSPy's output."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel

from typedrag.datasets.dataset import plain
from typedrag.errors import InputError
from typedrag.lms.lm import lm_identity
from typedrag.optimizers.compile.teleprompters.compilation import CompileRequest
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer
from typedrag.programs.artifact.state import fingerprint, state_of
from typedrag.runs import RunFolder, is_run

FORMAT = 1
KIND, LOG = "compile", "optimizer.log"


def identity_of(
    request: CompileRequest,
    optimizer: Optimizer,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
) -> dict[str, Any]:
    """All that a compile depends on; two compiles with equal identities are the same."""
    return {
        "format": FORMAT,
        "optimizer": optimizer.name,
        "options": optimizer.settings.model_dump(mode="json"),
        "seed": request.seed,
        "student": fingerprint(state_of(request.student)),
        "modules": _built(request.student),
        "trainset": _fingerprint(trainset),
        "valset": _fingerprint(valset),
        "metric": getattr(request.metric, "name", type(request.metric).__name__),
        "task LM": lm_identity(request.task_lm),
        "teacher LM": lm_identity(request.teacher_lm or request.task_lm),
        "prompt LM": lm_identity(request.prompt_lm or request.task_lm),
        **request.depends_on,
    }


def _built(student: dspy.Module) -> dict[str, Any]:
    """The classes of a module and its parts, with their options."""
    return {name: [type(part).__qualname__, _options_of(part)] for name, part in student.named_sub_modules(dspy.Module)}


def _options_of(part: dspy.Module) -> Any:
    options = getattr(part, "options", None)
    return options.model_dump(mode="json") if isinstance(options, BaseModel) else None


_one_at_a_time = threading.Lock()


@contextmanager
def compile_folder(folder: Path, identity: dict[str, Any]) -> Iterator[None]:
    """Compile into a folder of this identity within; one compile at a time in this process, as DSPy has one cache.

    Raises:
        InputError: If the folder holds another compile or something else, or another compile is under way here or
            in the folder.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise InputError("another compile is under way in this process", "Compile in another process")
    try:
        if not is_run(folder) and any(file.name != ".lock" for file in folder.iterdir()):
            raise InputError(f"{folder} holds something else", "Name an empty folder, or that of the same compile")
        with RunFolder.open(folder, identity, kind=KIND, resume=True, items={}):
            yield
    finally:
        _one_at_a_time.release()


def _fingerprint(examples: Sequence[dspy.Example]) -> str:
    texts = [json.dumps(e.toDict(), sort_keys=True, default=_as_json) for e in examples]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _as_json(value: Any) -> Any:
    try:
        return plain(value)
    except TypeError:
        return repr(value)


@contextmanager
def logged(folder: Path, redact: Callable[[str], str]) -> Iterator[None]:
    """Redirect DSPy's many prints and log messages, within the context, to a file."""
    logger = logging.getLogger("dspy")
    before = logger.handlers[:], logger.propagate, logger.level
    with (
        (folder / LOG).open("a", encoding="utf-8", buffering=1) as opened,
        redirect_stdout(_Redacted(opened, redact)) as log,
    ):
        logger.handlers, logger.propagate = [logging.StreamHandler(log)], False
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.handlers, logger.propagate = before[:2]
            logger.setLevel(before[2])


class _Redacted(io.TextIOBase):
    """A file that gets texts without keys and addresses."""

    def __init__(self, file: io.TextIOBase, redact: Callable[[str], str]) -> None:
        self._file, self._redact = file, redact

    def write(self, text: str) -> int:
        self._file.write(self._redact(text))
        return len(text)
