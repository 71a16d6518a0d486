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
from filelock import FileLock, Timeout
from pydantic import BaseModel

from typedrag.datasets.dataset import plain
from typedrag.errors import InputError
from typedrag.files.text_files import PART, write_json
from typedrag.lms.lm import lm_identity
from typedrag.optimizers.compile.teleprompters.compilation import CompileRequest
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer
from typedrag.programs.artifact.state import fingerprint, state_of

FORMAT = 1
IDENTITY, LOG, LOCK = "compile.json", "optimizer.log", "compile.lock"


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
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse to compile while another compile runs in this process (DSPy has one cache) or in this folder."""
    if not _one_at_a_time.acquire(blocking=False):
        raise InputError("another compile is under way in this process", "Compile in another process")
    try:
        with FileLock(folder / LOCK).acquire(timeout=0):
            yield
    except Timeout:
        raise InputError(f"another process compiles into {folder}", "Wait for it, or name another folder") from None
    finally:
        _one_at_a_time.release()


def check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Write the identity of a compile to its folder, or refuse a folder of another one.

    Raises:
        InputError: If the folder holds another compile, or something else.
    """
    file = folder / IDENTITY
    if not file.exists():
        if any(other.name != LOCK and other.suffix != PART for other in folder.iterdir()):
            raise InputError(f"{folder} holds something else", "Name an empty folder, or that of the same compile")
        write_json(file, identity)
        return
    check_same(file, identity)


def check_same(file: Path, identity: dict[str, Any]) -> None:
    """Refuse a compile whose identity differs from that in a file.

    Raises:
        InputError: If the identities differ, or the file cannot be read.
    """
    try:
        before = json.loads(file.read_text("utf-8"))
        others = [name for name in {**before, **identity} if before.get(name) != identity.get(name)]
    except (ValueError, AttributeError):
        raise InputError(f"{file} is not of a compile", "Name another folder") from None
    if others:
        raise InputError(
            f"{file.parent} holds another compile, which differs in: {', '.join(others)}", "Name another folder"
        )


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
