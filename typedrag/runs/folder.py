"""The folder of a run, which one process at a time works in, and which belongs to one identity."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.files.locks import lock_folder
from typedrag.runs.store import KIND, Contents, Store, read_contents

FILE = "run.sqlite"


class RunFolder:
    """The folder of a run that is open for work, until it is closed; `store` has the results in it."""

    def __init__(self, path: Path, store: Store, held: ExitStack) -> None:
        self.path, self.store, self._held = path, store, held

    @classmethod
    def open(
        cls,
        path: Path,
        identity: Mapping[str, Any],
        *,
        kind: str,
        resume: bool,
        items: Mapping[str, Any],
        additions: Collection[str] = (),
        notes: Mapping[str, Any] | None = None,
        redact: Callable[[str], str] = str,
        durable: bool = True,
    ) -> RunFolder:
        """Begin a run in a folder, or go on with the one that it holds, finished or not.

        Args:
            path: The folder, made if need be.
            identity: The settings that results depend on, as JSON values.
            kind: The kind of run, such as `evaluation`.
            resume: Go on with a run that is there. It must be of the same kind and identity.
            items: The items to work on by id, as JSON values. A run that goes on may get more, after those it had.
            additions: The settings that a run may get when it goes on.
            notes: Other facts, such as versions; those of its beginning are kept.
            redact: See `Store`, as of `durable`.
        """
        now, planned = (json.loads(json.dumps(dict(values))) for values in (identity, items))  # as they come back
        with ExitStack() as held:
            held.enter_context(lock_folder(path))
            store = Store(path / FILE, redact=redact, durable=durable)
            held.callback(store.close)
            with store.transaction():
                before = store.read()
                if before.kind:
                    if not resume:
                        raise exists_error(path)
                    if before.kind != kind:
                        other = f"{path} holds a run of another kind ({before.kind}, now {kind})"
                        raise InputError(other, "Name another --out")
                    shared = {n: value for n, value in now.items() if n in before.identity or n not in additions}
                    check_identity(path, before.identity, shared)
                    held_items, all_items = list(before.items.items()), list(planned.items())
                    if held_items[: len(all_items)] != all_items[: len(held_items)]:
                        raise InputError(f"{path} belongs to a run with other questions", "Name another --out")
                    if len(all_items) < len(held_items):
                        limits = f"{len(held_items)} questions, now {len(all_items)}"
                        raise InputError(
                            f"{path} belongs to a run with another limit ({limits})",
                            "Continue it with as many questions, or more",
                        )
                else:
                    store.identify({KIND: kind})
                    for name, value in (notes or {}).items():
                        store.note(name, value)
                store.identify({name: value for name, value in now.items() if name not in before.identity})
                store.plan(planned)
            return cls(path, store, held.pop_all())

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_run(folder: Path) -> bool:
    return (folder / FILE).is_file()


def exists_error(folder: Path) -> InputError:
    return InputError(f"{folder} holds a run", "Continue it with --resume, or name another --out")


def read_folder(folder: Path) -> Contents:
    """The contents of the run that a folder holds, finished or still in the making."""
    file = folder / FILE
    if not is_run(folder):
        raise InputError(f"{folder} holds no run", "Make one: typedrag evaluate … --out FOLDER")
    try:
        try:
            return read_contents(file, "mode=ro")
        except sqlite3.OperationalError:  # a folder where SQLite cannot put its lock
            return read_contents(file, "immutable=1")
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} is no run ({error})", "Name another folder") from None


def check_identity(place: object, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose identity was another."""

    def differing(before: Any, now: Any, path: str = "") -> Iterator[str]:
        if isinstance(before, dict) and isinstance(now, dict):
            for name in {**before, **now}:
                yield from differing(before.get(name), now.get(name), f"{path}.{name}" if path else name)
        elif before != now:
            yield f"{path} ({', now '.join(json.dumps(value, ensure_ascii=False) for value in (before, now))})"

    if changes := list(differing(dict(before), dict(now))):
        raise InputError(
            f"{place} belongs to a run with another {' and '.join(changes)}",
            "Continue it with the same settings, or name another --out",
        )
