"""PDF files, read with PDFium: columns in reading order, and words joined that a line break splits."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from typedrag.core.extras import require
from typedrag.retrieval.index.splitting import TOOL_TITLE, Document, LeftOut

_BREAK = re.compile(r"(?<=[^\W\d_])(?:[-\u00ad\u2010] ?\r?\n|[\x02\ufffe]\s*)(?=[^\W\d_])")
"""A hyphen within a word and at the end of a line, as documents or PDFium write it."""
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LONGEST_WORD = 60
_ENDED = re.compile(r"[.!?:;…。！？][\"'”’»)\]]*\Z")
_ROMAN = re.compile("[ivxlc]+")
_MOST_NUMBERS = 4  # of a line that may be that of its page
_EDGE = 2  # lines at an end of a page or a column that may be running heads
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
        pages = [_page_texts(page) for page in pdf]
    heads = _take_heads(pages)
    text = "\n".join(text for texts in pages for text in texts)
    left_out = [LeftOut(line, count * len("".join(line.split()))) for line, count in heads.items()]
    return Document("" if TOOL_TITLE.match(title) else title, join_words(text), left_out)


def _take_heads(pages: Sequence[list[str]]) -> Counter[str]:
    """Take the running heads, feet and page numbers out of the texts of pages, and count them.

    They are lines at an end of a page or a column that other pages have there, too, but for the number of the page. A
    head stays where it is first and breaks no sentence, as it may be that of a table; a foot, where it is last.
    """
    places = defaultdict[str, set[int]](set)
    for number, texts in enumerate(pages):
        for text in texts:
            lines = [line for line in text.splitlines() if line.strip()]
            for shape in (s for line in (*lines[:_EDGE], *lines[-_EDGE:]) for s in _shapes(line, number)):
                places[shape].add(number)
    least = max(2, min(3, len(pages)))
    # heads may be of even pages or of a chapter alone
    running = {s for s, on in places.items() if len(on) >= least and 2 * len(on) > max(on) - min(on)}
    removed, before = Counter[str](), ""
    for number, texts in enumerate(pages if running else []):
        for place, text in enumerate(texts):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            are_running = [not running.isdisjoint(_shapes(line, number)) for line in lines]
            top = next((n for n in range(min(_EDGE, len(lines))) if not are_running[n]), min(_EDGE, len(lines)))
            rest = min(_EDGE, len(lines) - top)
            end = len(lines) - next((n for n in range(rest) if not are_running[-1 - n]), rest)
            heads, feet = lines[:top], lines[end:]
            is_last = number == len(pages) - 1 and place == len(texts) - 1
            first = [h for h in heads if h in running and h not in removed and (not before or _ENDED.search(before))]
            last = [foot for foot in feet if is_last and foot in running]
            removed.update([*heads, *feet])
            removed.subtract([*first, *last])
            texts[place] = "\n".join([*first, *lines[top:end], *last])
            before = texts[place] or before
    return +removed


def _shapes(line: str, page: int) -> Iterator[str]:
    """A line, and with each of its numbers as the distance from the page's: that of its running head is the same."""
    line = " ".join(line.split())
    yield line
    for match in islice(re.finditer(r"\d{1,5}(?!\d)", line), _MOST_NUMBERS):
        yield f"{line[: match.start()]}\0{int(match[0]) - page}\0{line[match.end() :]}"
    if _ROMAN.fullmatch(line):
        yield "\0"


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


def _page_texts(page: Any) -> list[str]:
    shown = page.get_textpage()
    count = shown.count_rects()
    lines = []
    for number in range(count if count <= _MOST_LINES else 0):
        left, bottom, right, top = shown.get_rect(number)
        lines.append(_Line(left, bottom, right, top, shown.get_text_bounded(left, bottom, right, top)))
    boxes = list(_columns([line for line in lines if line.text.strip()]))
    if len(boxes) < 2:
        return [str(shown.get_text_range())]
    texts = []
    for box in boxes:
        left, bottom, right, top, _ = zip(*box, strict=True)
        texts.append(shown.get_text_bounded(min(left) - 1, min(bottom) - 1, max(right) + 1, max(top) + 1))
    return texts


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
