"""The settings of a list ranker, and the token sequences that it reads (RichRAG, eq. 5).

docid     [D] question [Q] sub-aspect [E] … [S] passage
passage   passage question [Q] sub-aspect [E] …
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt

SEPARATORS = ("[D]", "[Q]", "[E]", "[S]")
"""The docid token, and the ends of the question, of a sub-aspect and of all sub-aspects of a candidate (eq. 5)."""


class ListRankerSettings(BaseModel):
    """The settings by which a list ranker reads and writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    """The format of its folder."""
    pooling: Literal["auto", "docid", "passage"] = "auto"
    """The state of a candidate. `docid`: the state of its docid token, before question and passage
    (RichRAG, section 3.4). `passage`: the mean over the passage's tokens, which see only one another,
    and a learned share of the mean over the question's tokens, which come after them and see all. It is
    for sentence encoders: untrained, the state is their embedding of the passage. `auto`: `passage`
    for an encoder alone, `docid` for one that comes with a decoder or, like DeBERTa, cannot keep passages
    from seeing the question."""
    max_tokens: PositiveInt = 192
    """Tokens of a candidate: question and sub-aspects get at most half of them, the passage the rest."""
    temperature: PositiveFloat = 0.1
    """The temperature of the output head (eq. 7); the paper's is 0.1."""
    normalize: bool = True
    """If True, the output head compares directions alone (a cosine) instead of the plain dot product of
    eq. 7. Divided by 0.1, products of a few hundred dimensions leave no gradient at the start."""
    decoder_layers: NonNegativeInt = 2
    """Layers of the decoder that is added to an encoder alone; an encoder-decoder keeps its own decoder."""
    list_length: PositiveInt = 10
    """The number of passages of a list in training (RichRAG, appendix B: 10)."""


class Candidates(NamedTuple):
    """The passages to be ranked for a question.

    Attributes:
        question: The question.
        passages: Their texts, with their titles.
        aspects: The sub-aspects that each passage was found for; empty if none has any.
    """

    question: str
    passages: Sequence[str]
    aspects: Sequence[Sequence[str]] = ()


class Sequences(NamedTuple):
    """Sequences of tokens, and the span of each that is pooled to one state.

    Attributes:
        ids: One list a sequence.
        pooled: The first position of each span, and the position after its last.
    """

    ids: list[list[int]]
    pooled: list[tuple[int, int]]


class Reader:
    """Makes the sequences of a question and of its candidates. Not safe to call from several threads.

    Args:
        tokenizer: The encoder's tokenizer; it knows `SEPARATORS`.
        settings: The ranker's settings.
    """

    def __init__(self, tokenizer: Any, settings: ListRankerSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self._docid, self._question, self._aspect, self._aspects = tokenizer.convert_tokens_to_ids(list(SEPARATORS))
        self._begin = [] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id]
        ends = (tokenizer.sep_token_id, tokenizer.eos_token_id)
        self._end = [next(i for i in ends if i is not None)] if any(i is not None for i in ends) else []

    def read(self, candidates: Candidates) -> Sequences:
        """The sequences of the question with all sub-aspects, and then of each candidate with its own."""
        own = candidates.aspects or [()] * len(candidates.passages)
        every = sorted({aspect for aspects in own for aspect in aspects})  # independent of the order of passages
        [question, *aspects] = self._tokens([candidates.question, *every])
        known = dict(zip(every, aspects, strict=True))
        sequences = Sequences([], [])
        self._add(sequences, question, self._separated(aspects))
        for passage, names in zip(self._tokens(candidates.passages), own, strict=True):
            head = [*question, self._question, *self._separated([known[a] for a in names])]
            self._add(sequences, passage, head)
        return sequences

    def pad(self, ids: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and attention mask as tensors."""
        width = max(map(len, ids))
        padding = self.tokenizer.pad_token_id or 0
        padded = torch.tensor([[*row, *[padding] * (width - len(row))] for row in ids])
        lengths = torch.tensor([len(row) for row in ids])
        return padded, (torch.arange(width) < lengths[:, None]).long()

    def _separated(self, aspects: Sequence[list[int]]) -> list[int]:
        return [token for aspect in aspects for token in (*aspect, self._aspect)]

    def _add(self, sequences: Sequences, text: list[int], about: list[int]) -> None:
        """Add a text with its context: a passage with its question, or a question with its sub-aspects."""
        about = about[: self.settings.max_tokens // 2]
        room = max(1, self.settings.max_tokens - len(about) - 4)  # begin, docid, end of sub-aspects, end
        if self.settings.pooling == "docid":
            start = len(self._begin)
            ids = [*self._begin, self._docid, *about, self._aspects, *text[:room], *self._end]
            sequences.pooled.append((start, start + 1))
        else:
            ids = [*self._begin, *text[:room], *self._end] or [self._aspects]
            sequences.pooled.append((0, len(ids)))
            ids += about
        sequences.ids.append(ids)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        # separators written in a passage are text
        ids: list[list[int]] = self.tokenizer(
            list(texts),
            add_special_tokens=False,
            truncation=True,
            max_length=self.settings.max_tokens,
            split_special_tokens=True,
        )["input_ids"]
        return ids
