"""What a list ranker is, besides its weights."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt

SEPARATORS = ("[D]", "[Q]", "[E]", "[S]")
"""The docid token, and what ends the question, a sub-aspect and all sub-aspects of a candidate (eq. 5)."""


class ListRankerSettings(BaseModel):
    """How a list ranker reads and writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    """Of the folder that holds it."""
    pooling: Literal["auto", "docid", "passage"] = "auto"
    """What stands for a candidate. `docid`: the state of its docid token, before question and passage
    (RichRAG, section 3.4). `passage`: the mean over the passage's tokens, which see one another alone,
    and a learned share of the mean over the question's, which come behind them and see all. That is
    for sentence encoders: before any training it is their embedding of the passage. `auto`: `passage`
    for an encoder alone, `docid` for one that comes with a decoder, or that cannot keep passages from
    seeing the question, as DeBERTa."""
    max_tokens: PositiveInt = 192
    """Of a candidate: question and sub-aspects get at most half of them, the passage what is left."""
    temperature: PositiveFloat = 0.1
    """Of the output head (eq. 7); the paper's is 0.1."""
    normalize: bool = True
    """Whether the output head compares directions alone (a cosine), or takes the plain dot product of
    eq. 7. Divided by 0.1, products of a few hundred dimensions leave no gradient at the start."""
    decoder_layers: NonNegativeInt = 2
    """Of the decoder that an encoder alone is given; one that comes with a decoder keeps it."""
    list_length: PositiveInt = 10
    """Passages of a list in training (RichRAG, appendix B: 10)."""
