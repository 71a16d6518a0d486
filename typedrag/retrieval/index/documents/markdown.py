"""Markdown by its structure: front matter, headings, tables, lists and code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from typedrag.retrieval.index.documents.html import read_html
from typedrag.retrieval.index.splitting import Block, Document

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(?![ \t]*\n)(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
"""As Pandoc has it: a blank line after the first dashes makes them a rule."""

_KEYS = re.compile(r"(?:(?:[A-Za-z][\w-]*[ \t]*[:=]|[ \t#-]).*\n|\n)*\Z")
"""Lines that each have a key, go on with a value or are comments."""
_KEY = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=](?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)
"""A key of front matter and its value on the same line."""


def read_markdown(text: str) -> Document:
    """The title, from the front matter or else the first heading, and the blocks, still in Markdown."""
    from markdown_it import MarkdownIt

    metadata, text = _parted(text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = (tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open")
    title = metadata.get("title")
    title = str(title) if isinstance(title, str | int | float) else next(headings, "")
    return Document(title, list(_blocks(tokens, text.split("\n"))))


def _parted(text: str) -> tuple[dict[str, Any], str]:
    """The front matter, in YAML, TOML or what looks like them, and the text after it; without one, all is text."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        metadata = tomllib.loads(match[2]) if match[1] == "+++" else yaml.safe_load(match[2])
    except (ValueError, RecursionError, yaml.YAMLError):  # often a title that has a colon but no quotes
        metadata = dict(_KEY.findall(match[2])) if _KEYS.match(f"{match[2]}\n") else None
    return (metadata, text[match.end() :]) if isinstance(metadata, dict) else ({}, text)


def _blocks(tokens: Sequence[Token], lines: list[str]) -> Iterator[Block]:
    for token in tokens:
        if token.level or token.map is None or token.nesting < 0:
            continue
        source = lines[token.map[0] : token.map[1]]
        text = "\n".join(source).strip("\n")
        if token.type == "heading_open":
            yield Block(" ".join(text.split()), "heading")
        elif token.type == "paragraph_open":
            yield Block(text)
        elif token.type == "table_open":
            yield Block("\n".join(source[2:]).strip("\n"), "lines", "\n".join(source[:2]))
        elif token.type == "fence":
            fence = token.markup + token.info.rstrip() if token.info else token.markup
            yield Block(token.content.rstrip("\n"), "lines", fence, token.markup)
        elif token.type == "html_block":
            yield from read_html(text.encode()).content  # type: ignore[misc]
        elif token.type != "hr":
            yield Block(text, "lines")
