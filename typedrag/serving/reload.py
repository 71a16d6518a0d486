"""Reloads programs without interrupting questions: when their alias moves in the registry, or at a signal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from typedrag.core.errors import RetrievalError, Unavailable, first_line
from typedrag.core.records import Answer
from typedrag.lms.lm import use_lm
from typedrag.lms.trace import limit_tokens
from typedrag.serving.programs import LoadedProgram, ProgramSpec
from typedrag.serving.service import Service, run_in_background

logger = logging.getLogger(__name__)

EXAMPLE = "Why does bread rise?"
"""The question that a reloaded program is tried on."""
_UNREACHABLE = "The registry, the LM or the index cannot be used now; this one goes on."
_REFUSED = "The new one was refused, since it {}; this one goes on."


class Reloader:
    """Reloads programs, tries each on a question, and only then replaces the old one.

    A broken program is refused, as the log, the metrics and `/v1/program` say, and is not tried again until its alias
    moves or a reload is requested. If the registry, the LM or the index cannot be used, it is tried again at the next
    check of the registry.

    Args:
        service: The service with the programs.
        sources: The sources of its programs.
    """

    def __init__(self, service: Service, sources: Sequence[ProgramSpec]) -> None:
        self._service = service
        self._sources = tuple(sources)
        self._refused: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Start checking the registry every `registry_seconds` for programs that are registered models."""
        if watched := [source for source in self._sources if source.registered]:
            self._begin(self._watch(watched))

    def reload_all(self) -> None:
        """Reload all programs, including folders."""
        for source in self._sources:
            self._begin(self.reload(source))

    async def reload(self, source: ProgramSpec) -> None:
        """Reload a program."""
        await self._reload(source, "")

    async def look(self, source: ProgramSpec) -> None:
        """Reload a program if its alias has moved."""
        name = source.name
        try:
            version = await run_in_background(source.version)
        except Exception as error:
            self._report_failure(name, "unavailable", _UNREACHABLE, error)
            return
        if version == self._service.programs[name].version:
            self._refused.pop(name, None)
            self._service.reload_errors.pop(name, None)
        elif version != self._refused.get(name):
            await self._reload(source, version)

    async def _watch(self, sources: Sequence[ProgramSpec]) -> None:
        while True:
            await asyncio.sleep(self._service.settings.registry_seconds)
            for source in sources:
                await self.look(source)

    async def _reload(self, source: ProgramSpec, version: str) -> None:
        name = source.name
        async with self._turn:
            try:
                loaded = await run_in_background(source.open)
            except Exception as error:
                elsewhere = isinstance(error, Unavailable) and not isinstance(error, RetrievalError)
                self._keep(name, version, "cannot be opened", error, elsewhere)
                return
            try:
                await self._try(loaded)
            except Exception as error:
                elsewhere = await self._fails(self._service.programs[name])
                self._keep(name, loaded.version, f"has no answer to {EXAMPLE!r}", error, elsewhere)
                return
            self._refused.pop(name, None)
            self._service.swap(loaded)
            self._service.metrics.count_reload(name, "swapped")
            logger.warning("program %s is served anew%s", name, f", version {version}" if version else "")

    async def _try(self, loaded: LoadedProgram) -> None:
        settings = self._service.settings
        with use_lm(loaded.lm), limit_tokens(settings.question_tokens):
            prediction = await asyncio.wait_for(loaded.program.acall(question=EXAMPLE), settings.deadline)
        if not Answer.from_prediction(prediction).answer.strip():
            raise ValueError("its answer is empty")

    async def _fails(self, loaded: LoadedProgram) -> bool:
        """True if the old program fails as well, so that the fault is the LM's or the index's."""
        try:
            await self._try(loaded)
        except Exception:
            return True
        return False

    def _keep(self, name: str, version: str, reason: str, error: Exception, elsewhere: bool) -> None:
        """Keep the old program, since the new one fails, or something that both need."""
        if elsewhere:
            self._report_failure(name, "unavailable", _UNREACHABLE, error)
        else:
            self._refused[name] = version
            self._report_failure(name, "refused", _REFUSED.format(reason), error)

    def _report_failure(self, name: str, outcome: str, message: str, error: Exception) -> None:
        self._service.metrics.count_reload(name, outcome)
        if self._service.reload_errors.get(name) != message:  # logged once, not at every check
            logger.error("program %s is not served anew (%s): %s", name, outcome, first_line(error))
        self._service.reload_errors[name] = message

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
