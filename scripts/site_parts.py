"""The parts of generated pages."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

import griffe

_SPECIAL = re.compile(r"`[^`]*`|[|<]")
"""Code, which stays as it is, or what Markdown would read as something else."""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown.

    Example:
        >>> print(table(("option", "meaning"), [("`a|b`", "one | other")]))
        | option | meaning |
        | --- | --- |
        | `a|b` | one \\| other |
    """
    header = tuple(header)
    lines = [header, ("---",) * len(header), *rows]
    escapes = {"|": r"\|", "<": "&lt;"}
    cells = ([_SPECIAL.sub(lambda m: escapes.get(m[0], m[0]), re.sub(r"\s+", " ", c)) for c in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


@cache
def package() -> griffe.Module:
    """typedrag as it is read without running it, which keeps what is written below a field."""
    module = griffe.load("typedrag")
    assert isinstance(module, griffe.Module)
    return module


def modules(module: griffe.Module | None = None) -> Iterator[griffe.Module]:
    """A module and all below it; by default all of typedrag."""
    module = module or package()
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from modules(inner)
