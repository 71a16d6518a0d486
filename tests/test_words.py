"""The package's own words: docstrings that begin with a verb or a noun, locals that are nouns."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import typedrag

ROOT = Path(__file__).parents[1]
FILES = sorted(file for folder in ("typedrag", "scripts", "benchmarks") for file in (ROOT / folder).rglob("*.py"))
FRAGMENTS = frozenset(
    "also and as at because before but by for from how if in into like nor not of on or since so than that then those "
    "to under until what when where whether which while who whose why with within without".split()
)
"""First words of a docstring that only goes on with what a reader has not read."""
PARTICIPLES = frozenset("asked found given got kept made said seen taken told wanted".split())
"""Names of locals that do not say what they hold."""
BANNED = re.compile(r"\b(?:mend(?:s|ed|ing)?|anew|goes on|of no use|is had)\b", re.IGNORECASE)
"""Words that nobody says any more: correct or fix, again, continues, irrelevant, is available."""
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*")} - {ROOT / "CHANGELOG.md"})
PROMPTS = {ROOT / "typedrag" / "signatures", ROOT / "typedrag" / "core" / "question_types.py"}
"""Docstrings of classes there are what an LM reads: instructions, and descriptions in JSON schemas."""


def _first_words(file: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    kinds = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    if PROMPTS.isdisjoint({file, *file.parents}):
        kinds |= ast.ClassDef
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text.split(maxsplit=1)[0].strip(",.:;").lower()


def _locals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    fields = {
        id(n.target) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body if hasattr(n, "target")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_words(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    fragments = [
        f"line {line}: docstring begins with {word!r}" for line, word in _first_words(file, tree) if word in FRAGMENTS
    ]
    participles = [f"line {line}: local {name!r}" for line, name in _locals(tree) if name in PARTICIPLES]
    assert not fragments + participles


@pytest.mark.parametrize("file", [*FILES, *PAGES], ids=lambda file: str(file.relative_to(ROOT)))
def test_plain_words(file):
    prompts = PROMPTS | {ROOT / "typedrag" / "builders"}
    if not prompts.isdisjoint({file, *file.parents}) or file.name.startswith(("full-", "examples.md")):
        pytest.skip("an LM reads or wrote it, or it is a record of its day")
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    assert not [f"line {number}: {found[0]}" for number, line in lines if (found := BANNED.search(line))]


@pytest.mark.parametrize("name", typedrag.__all__)
def test_what_users_import_is_documented(name):
    exported = getattr(typedrag, name)
    own = [value for key, value in vars(exported).items() if inspect.isfunction(value) and not key.startswith("_")]
    assert all(
        inspect.getdoc(value) for value in [exported, *own] if inspect.isroutine(value) or inspect.isclass(value)
    )
