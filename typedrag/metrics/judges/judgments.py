"""Judgments, stored by content, so that nothing is judged and paid for twice."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy

from typedrag.files.database import SQLite, Tables
from typedrag.lms.lm import lm_identity
from typedrag.lms.replies import lm_source

TABLE = "CREATE TABLE IF NOT EXISTS judgments (key TEXT PRIMARY KEY, judge TEXT NOT NULL, judgment TEXT NOT NULL)"
"""The statement that makes the table of judgments."""


class Judgments:
    """A store of judgments in one file, shared by threads and processes, that survives a kill.

    Args:
        place: An SQLite file, created if need be, or a database that has the table; None keeps judgments in memory.

    Raises:
        InputError: If the file cannot be used.
    """

    def __init__(self, place: Path | Tables | None = None) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, threading.Lock] = {}
        self._file: Tables = SQLite(place, "judgments", TABLE) if place is None or isinstance(place, Path) else place

    def get_or_make(
        self, judge: dspy.Module, inputs: Mapping[str, Any], make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The stored judgment of these inputs by this judge and LM; if there is none, make and store it.

        Args:
            judge: The judge. Its signatures and demonstrations are part of the key, so that a compiled
                judge does not find the judgments of the one it was compiled from.
            inputs: All that the judgment depends on, as JSON values.
            make: Makes the judgment, as JSON values. If it raises, nothing is stored. Threads that need
                the same judgment at the same time make it once.
        """
        key = _key(judge, inputs)
        with self._lock:
            making = self._under_way.setdefault(key, threading.Lock())
        try:
            with making:
                judgment = self._find(key)
                if judgment is None:
                    judgment = make()
                    self._keep(key, type(judge).__name__, judgment)
        finally:
            with self._lock:
                self._under_way.pop(key, None)
        return judgment

    def __len__(self) -> int:
        return int(self._file.run("SELECT COUNT(*) FROM judgments")[0][0])

    def _find(self, key: str) -> dict[str, Any] | None:
        rows = self._file.run("SELECT judgment FROM judgments WHERE key = :key", key=key)
        return json.loads(rows[0][0]) if rows else None

    def _keep(self, key: str, judge: str, judgment: dict[str, Any]) -> None:
        text = json.dumps(judgment, ensure_ascii=False)
        self._file.run(
            "INSERT OR REPLACE INTO judgments VALUES (:key, :judge, :judgment)", key=key, judge=judge, judgment=text
        )


def asked_without_probabilities(judge: dspy.Module) -> dict[str, bool]:
    """The part of a judgment's key for a judge that does not ask for token probabilities; empty for one that does, as
    is the default: it cannot use judgments that were stored without them."""
    return {} if getattr(judge, "token_probabilities", True) else {"token_probabilities": False}


def _key(judge: dspy.Module, inputs: Mapping[str, Any]) -> str:
    asks = {name: _identity(predictor) for name, predictor in judge.named_predictors()}
    parts = [type(judge).__name__, asks, _lm_identity(), inputs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _identity(predictor: Any) -> dict[str, Any]:
    state = predictor.dump_state()
    fields = {name: str(f.annotation) for name, f in predictor.signature.fields.items()}
    return {"signature": state["signature"], "fields": fields, "demos": state["demos"]}


def _lm_identity() -> dict[str, Any]:
    lm = dspy.settings.lm
    if lm is None:
        return {}
    settings = {k: v for k, v in lm.kwargs.items() if k not in ("api_base", "api_key", "timeout")}
    return {**lm_identity(lm), **settings, "source": lm_source(lm)}
