"""PDF files, read with PDFium: columns in reading order, and words joined that a line break splits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.extras import require
from typedrag.retrieval.index.splitting import Document

_TOOL_TITLE = re.compile(
    r"(?i)^(?:Microsoft (?:Word|PowerPoint|Excel) - .*|untitled.*|\(anonymous\)|.*\.(?:docx?|tex|dvi|indd|qxd))$"
)
"""Titles that programs write: their own name and that of the file."""
_PARTED = re.compile("([^\\W\\d_]+(?:-[^\\W\\d_]+)*)(?:[-\u00ad\u2010] ?\r?\n|[\x02\ufffe]\\s*)([^\\W\\d_]+)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_COLUMN_LINES = 4
"""The least number of lines that two columns have side by side."""
_COLUMN_CHARACTERS = 18
"""The least mean length of a column's lines, in characters; the lines of a table are shorter."""


class _Line(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float
    text: str


def read_pdf(path: Path) -> Document:
    """A PDF's title, unless a program wrote it, and its text."""
    require("pypdfium2", "spellchecker")
    from pypdfium2 import PdfDocument

    with PdfDocument(path) as pdf:
        title = pdf.get_metadata_dict().get("Title", "").strip()
        text = "\n".join(_page_text(page) for page in pdf)
    return Document("" if _TOOL_TITLE.match(title) else title, join_words(text))


def join_words(text: str) -> str:
    """The text without the hyphens that only break a word at a line's end; those of compounds stay.

    A hyphen stays if the word occurs with it elsewhere in the text, or if both parts are English words
    and the joined word is not.

    Example:
        >>> join_words("cold kit-\\nchens with a well-\\nknown state-of-the-\\nart oven")
        'cold kitchens with a well-known state-of-the-art oven'
    """
    words = {word.lower() for word in _WORD.findall(_PARTED.sub(" ", text))}

    def joined(match: re.Match[str]) -> str:
        first, second = match[1], match[2]
        whole, compound = (first + second).lower(), f"{first}-{second}".lower()
        keeps = (
            second[0].isupper()
            or "-" in first
            or (compound in words and whole not in words)
            or (whole not in words and not _english(whole) and _english(first) and _english(second))
        )
        return f"{first}-{second}" if keeps and not first.isupper() else first + second

    text = _PARTED.sub(joined, text)
    return re.sub("[\x02\ufffe]", "-", text)


def _english(word: str) -> bool:
    return word.lower() in _dictionary()


@cache
def _dictionary() -> Any:
    from spellchecker import SpellChecker

    return SpellChecker(language="en")


def _page_text(page: Any) -> str:
    shown = page.get_textpage()
    lines = []
    for number in range(shown.count_rects()):
        left, bottom, right, top = shown.get_rect(number)
        lines.append(_Line(left, bottom, right, top, shown.get_text_bounded(left, bottom, right, top)))
    boxes = list(_columns([line for line in lines if line.text.strip()]))
    if len(boxes) < 2:
        return str(shown.get_text_range())
    return "\n".join(shown.get_text_bounded(*_around(box)) for box in boxes)


def _columns(lines: Sequence[_Line]) -> Iterator[Sequence[_Line]]:
    """The lines in groups in reading order: column by column between the lines that span the columns."""
    gutter = _gutter(lines)
    if gutter is None:
        if lines:
            yield lines
        return
    spanning = sorted((line for line in lines if line.left < gutter < line.right), key=lambda line: -line.top)
    rest = [line for line in lines if line not in spanning]
    for number in range(len(spanning) + 1):
        floor = spanning[number].bottom if number < len(spanning) else float("-inf")
        band = [line for line in rest if line.bottom > floor]
        rest = [line for line in rest if line.bottom <= floor]
        for column in ([x for x in band if x.right <= gutter], [x for x in band if x.left >= gutter]):
            if column:
                yield from _columns(column)
        if number < len(spanning):
            yield [spanning[number]]


def _gutter(lines: Sequence[_Line]) -> float | None:
    """The place where the columns of these lines part: the one that the fewest lines span."""
    places = sorted({line.left - 0.5 for line in lines})
    best: tuple[int, float] | None = None
    for place in places:
        left = [line for line in lines if line.right <= place]
        right = [line for line in lines if line.left >= place]
        spanning = len(lines) - len(left) - len(right)
        if spanning > len(lines) / 3 or not (_is_column(left) and _is_column(right)):
            continue
        beside = sum(any(a.bottom < b.top and b.bottom < a.top for b in right) for a in left)
        if beside >= _COLUMN_LINES and (best is None or spanning < best[0]):
            best = (spanning, place)
    return best[1] if best else None


def _is_column(lines: Sequence[_Line]) -> bool:
    if len(lines) < _COLUMN_LINES:
        return False
    return sum(len(line.text.strip()) for line in lines) / len(lines) >= _COLUMN_CHARACTERS


def _around(lines: Sequence[_Line]) -> tuple[float, float, float, float]:
    left, bottom, right, top, _ = zip(*lines, strict=True)
    return min(left) - 1, min(bottom) - 1, max(right) + 1, max(top) + 1
