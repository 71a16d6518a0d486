"""PDF files, read with PDFium: columns in reading order, and words joined that a line break splits."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from typedrag.core.extras import require
from typedrag.retrieval.index.splitting import TOOL_TITLE, Document

_BREAK = re.compile(r"(?<=[^\W\d_])(?:[-\u00ad\u2010] ?\r?\n|[\x02\ufffe]\s*)(?=[^\W\d_])")
"""A hyphen within a word and at the end of a line, as documents or PDFium write it."""
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LONGEST_WORD = 60
_MOST_LINES = 2_000  # a page with more pieces of text is a form or a drawing: its text is read in the PDF's own order
_COLUMN_LINES = 4  # the least number of lines that two columns have side by side
_COLUMN_CHARACTERS = 18  # the least mean length of a column's lines, in characters; the lines of a table are shorter


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
    return Document("" if TOOL_TITLE.match(title) else title, join_words(text))


def join_words(text: str) -> str:
    """The text without the hyphens that only break a word at a line's end; those of compounds stay.

    A hyphen stays if the word occurs with it elsewhere in the text, or if both parts are English words and the joined
    word is not.
    """
    pieces = _BREAK.split(text)
    marked = "\x02".join(pieces)
    whole_words = (m for m in _WORD.finditer(marked) if "\x02" not in marked[max(0, m.start() - 1) : m.end() + 1])
    words = {match[0].lower() for match in whole_words}
    joined = [pieces[0]]
    for before, after in pairwise(pieces):
        joined += ["-" if _keeps_hyphen(before, after, words) else "", after]
    return re.sub("[\x02\ufffe]", "-", "".join(joined))


def _keeps_hyphen(before: str, after: str, words: Collection[str]) -> bool:
    first = _WORD.findall(before[-_LONGEST_WORD:])[-1]
    second = _WORD.findall(after[:_LONGEST_WORD])[0].split("-")[0]
    whole, compound = (first + second).lower(), f"{first}-{second}".lower()
    return not first.isupper() and (
        second[0].isupper()
        or "-" in first
        or (compound in words and whole not in words)
        or (whole not in words and [w.lower() in _dictionary() for w in (whole, first, second)] == [False, True, True])
    )


@cache
def _dictionary() -> Any:
    from spellchecker import SpellChecker

    return SpellChecker(language="en")


def _page_text(page: Any) -> str:
    shown = page.get_textpage()
    count = shown.count_rects()
    lines = []
    for number in range(count if count <= _MOST_LINES else 0):
        left, bottom, right, top = shown.get_rect(number)
        lines.append(_Line(left, bottom, right, top, shown.get_text_bounded(left, bottom, right, top)))
    boxes = list(_columns([line for line in lines if line.text.strip()]))
    if len(boxes) < 2:
        return str(shown.get_text_range())
    texts = []
    for box in boxes:
        left, bottom, right, top, _ = zip(*box, strict=True)
        texts.append(shown.get_text_bounded(min(left) - 1, min(bottom) - 1, max(right) + 1, max(top) + 1))
    return "\n".join(texts)


def _columns(lines: Sequence[_Line]) -> Iterator[Sequence[_Line]]:
    """The lines in groups in reading order: column by column between the lines that span the columns."""
    gutter = _gutter(lines)
    if gutter is None:
        if lines:
            yield lines
        return
    spanning = sorted((line for line in lines if line.left < gutter < line.right), key=lambda line: -line.top)
    rest = [line for line in lines if not line.left < gutter < line.right]
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
    left, bottom, right, top = np.array([line[:4] for line in lines], dtype=float).reshape(-1, 4).T
    sizes = np.array([len(line.text.strip()) for line in lines])
    best, gutter = len(lines) / 3, None
    for place in np.unique(np.floor(left)) - 0.5:  # not more than a page has points
        first, second = right <= place, left >= place
        spanning = len(lines) - first.sum() - second.sum()
        if spanning > best or (spanning == best and gutter is not None):
            continue
        if any(len(s) < _COLUMN_LINES or s.mean() < _COLUMN_CHARACTERS for s in (sizes[first], sizes[second])):
            continue
        begun = np.searchsorted(np.sort(bottom[second]), top[first], side="left")
        ended = np.searchsorted(np.sort(top[second]), bottom[first], side="right")
        if (begun > ended).sum() >= _COLUMN_LINES:  # lines that have one beside them
            best, gutter = spanning, float(place)
    return gutter
