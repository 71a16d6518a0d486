"""What a document's reader gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.retrieval.index.splitting import Block


class Document(NamedTuple):
    """A document before it is split.

    Attributes:
        title: May be empty.
        content: Its blocks, or the text of one without structure.
    """

    title: str
    content: str | Sequence[Block]
