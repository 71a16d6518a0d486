"""Documents split into passages of about 100 words, in time linear in their length, whatever their script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from semantic_text_splitter import TextSplitter

PASSAGE_WORDS = (70, 120)
"""Words of a passage of a split document, at least and at most: about 100, ending where a sentence ends."""
WORD_CHARACTERS = 10  # characters that count as a word at least, spaces or not. English words have five or six.

TOOL_TITLE = re.compile(
    r"(?i)(?:Microsoft (?:Word|PowerPoint|Excel) - .*|untitled.*|\(anonymous\)"
    r"|.*\.(?:docx?|pptx?|xlsx?|tex|dvi|indd|qxd)"
    r"|(?:Document|Dokument|Presentation|Präsentation|Présentation|Presentación|Book|Mappe|Classeur|Folie|Slide) ?\d+"
    r"|(?=.*PowerPoint)(?=.*(?:pr[eéæä][sz]|презент|プレゼン|演示|簡報|프레젠|esitys|sunusu|bemutat)).{,40})?\s*\Z"
)
"""Titles that programs write, in some of their languages: what they make, their own name, that of the file; or none."""
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Han and kana: a word has about two of them."""
_UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")
"""Thai, Lao, Tibetan, Burmese and Khmer: a word has about five letters and signs."""
_WINDOW = 8_000
"""Characters of English that are split at a time, fewer of denser scripts. At each passage the splitter scans the
whole rest of a stretch without sentence ends, so that its time would grow with the square of the length. The last
quarter of a window is left for the next, since what follows might still belong to its passage."""
_HEADING_WORDS = 30


class Block(NamedTuple):
    """A part of a document."""

    text: str
    kind: str = "prose"
    """`prose` has no lines of its own; `lines` keep theirs, as code, tables and lists do; a `heading` stays with the
    block after it."""
    opening: str = ""  # a line put before each passage's share of the block, such as a table's header
    closing: str = ""


class LeftOut(NamedTuple):
    """A part of a document that is not indexed, as what stands around a page's content."""

    text: str
    size: int
    """Characters without spaces, and without the texts of links."""


class Document(NamedTuple):
    """A document before it is split: its title, its blocks or the text of one without any, and what is left out."""

    title: str
    content: str | Sequence[Block]
    left_out: Sequence[LeftOut] = ()


def word_count(text: str) -> int:
    """The length of a text in words, also in scripts without spaces."""
    return max(len(text.split()), -(-_weight(text) // WORD_CHARACTERS))


def split_text(text: str) -> list[str]:
    """The passages of a text without structure, each on one line."""
    return [" ".join(piece.split()) for piece in _pieces(text, *PASSAGE_WORDS)]


def split_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the passages of a document's blocks: none is only a heading, and no line is split that fits into one.

    A table's header and the fences of code are repeated in each passage that holds a part of them.
    """
    least, most = PASSAGE_WORDS
    passage: list[Block] = []
    for piece in _fitting(blocks):
        bodies = [number for number, block in enumerate(passage, 1) if block.kind != "heading"]
        headings = passage[bodies[-1] if bodies else 0 :]
        full = (
            word_count(_joined([*passage, piece])) > most
            or (piece.kind == "heading" and word_count(_joined(passage)) >= least)
            or [block.kind for block in passage[-1:]] == ["prose"] == [piece.kind]  # pieces of one text that was split
        )
        if full and len(headings) < len(passage):
            yield _joined(passage[: len(passage) - len(headings)])
            passage = headings
        elif full and word_count(_joined(passage)) >= most:
            yield _joined(passage)
            passage = []
        passage.append(piece)
    if passage:
        yield _joined(passage)


def _fitting(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks, those too long for a passage in several pieces."""
    least, most = PASSAGE_WORDS
    capped = (
        b._replace(kind="prose") if b.kind == "heading" and word_count(b.text) > _HEADING_WORDS else b for b in blocks
    )
    for kind, group in groupby(capped, key=lambda block: block.kind):
        if kind == "prose":  # split as one text, so that passages are as full as possible
            text = "\n\n".join(" ".join(block.text.split()) for block in group)
            yield from (Block(re.sub(r"\n+", "\n", piece)) for piece in _pieces(text, least, most))
            continue
        for block in group:
            frame = word_count(block.opening) + word_count(block.closing)
            if frame > most // 2:  # no room for anything else
                whole = filter(None, (block.opening, block.text, block.closing))
                block, frame = Block("\n".join(whole), block.kind), 0
            if word_count(block.text) + frame <= most:
                yield block
                continue
            pieces = _pieces(block.text, max(1, least - frame), most - frame, trim=False)
            yield from (block._replace(text=piece.strip("\n")) for piece in pieces if piece.strip())


def _joined(passage: list[Block]) -> str:
    parts = (part for block in passage for part in (block.opening, block.text, block.closing))
    return "\n".join(part for part in parts if part)


def _pieces(text: str, least: int, most: int, *, trim: bool = True) -> Iterator[str]:
    """Yield the passages that semantic-text-splitter finds, window by window.

    Its passages depend only on the text after their start, and not on all of it. Each window therefore begins with
    the last passage of the previous one that may have been cut short.
    """
    splitter, start = _splitter(least, most, trim), 0
    while len(text) - start > _WINDOW:
        window = text[start : start + _WINDOW]
        window = window[: _WINDOW * _WINDOW // _weight(window)]
        chunks = splitter.chunk_indices(window)
        whole = [piece for offset, piece in chunks[:-1] if offset + len(piece) <= 0.75 * len(window)]
        whole = whole or [piece for _, piece in chunks[:1]]
        yield from whole
        start += chunks[len(whole)][0] if len(whole) < len(chunks) else len(window)
    yield from splitter.chunks(text[start:])


def _weight(text: str) -> int:
    """The length in characters; one of a script without spaces counts as many as its share of a word."""
    if text.isascii():
        return len(text)
    return len(text) + 4 * len(_IDEOGRAPHS.findall(text)) + len(_UNSPACED.findall(text))


@cache
def _splitter(least: int, most: int, trim: bool) -> TextSplitter:
    from semantic_text_splitter import TextSplitter

    def size(text: str) -> int:
        # by how much the rest is too long makes no difference, and takes long to compute
        return word_count(text) if len(text) <= most * WORD_CHARACTERS else most + 1

    return TextSplitter.from_callback(size, (least, most), trim=trim)
