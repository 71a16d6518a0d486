"""What builders have in common: rows, what was left out, and LM calls by many threads that a kill does not lose."""

from __future__ import annotations

import contextvars
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from typedrag.datasets.dataset import hash_of
from typedrag.text_files import write_text

T = TypeVar("T")
R = TypeVar("R")

Row = dict[str, Any]
"""Plain JSON values."""


@dataclass
class Built:
    """What a builder made.

    Attributes:
        rows: In an order that the same input gives again.
        left_out: How many were left out, by the reason.
    """

    rows: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def write_built(built: Built, path: Path) -> None:
    """Write the rows as JSONL, whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in built.rows))


def share_of(text: str, seed: int) -> float:
    """A number from 0 to 1 that a text has on every machine, evenly spread.

    Example:
        >>> round(share_of("bread", 0), 3)
        0.787
    """
    return int(hash_of(text, seed)[:13], 16) / 16**13


def part_by_hash(text: str, seed: int, *, validation: float, test: float) -> str:
    """train, validation or test, the latter two with these shares; a text has the same in every build."""
    share = share_of(text, seed)
    if share < test:
        return "test"
    return "validation" if share < test + validation else "train"


def in_threads(function: Callable[[T], R], items: Sequence[T], threads: int, on_done: Callable[[int], None]) -> list[R]:
    """Apply a function to all items in threads that carry the context; results in the order of the items.

    A fault ends it, once what is under way has ended: with what was stored, the next run goes on.

    Args:
        function: Called in threads.
        items: In any number.
        threads: Items under way at once.
        on_done: Called with the number done so far.

    Raises:
        Exception: The first that the function raised.
    """
    results: dict[int, R] = {}
    fault: BaseException | None = None
    todo: Iterator[tuple[int, T]] = iter(enumerate(items))
    with ThreadPoolExecutor(threads) as pool:
        running: dict[Future[R], int] = {}
        while True:
            while fault is None and len(running) < threads and (job := next(todo, None)):
                place, item = job
                running[pool.submit(contextvars.copy_context().run, function, item)] = place
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                place = running.pop(future)
                if error := future.exception():
                    fault = fault or error
                else:
                    results[place] = future.result()
            on_done(len(results))
    if fault is not None:
        raise fault
    return [results[place] for place in range(len(items))]


def counted(rows: Sequence[Mapping[str, Any]], *fields: str) -> dict[str, int]:
    """How many rows have which values in these fields, as `value/value`.

    Example:
        >>> counted([{"role": "router", "part": "test"}, {"role": "router", "part": "test"}], "role", "part")
        {'router/test': 2}
    """
    counts = Counter("/".join(str(row.get(f, "")) for f in fields) for row in rows)
    return dict(sorted(counts.items()))
