"""Settings of a list ranker, which commands read without torch."""

from typing import Literal

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
    docids: NonNegativeInt = 0
    """Docid tokens, one for each place of a pool, which then has no more passages (RichRAG, eq. 5), and a decoder that
    begins and continues as in the authors' code, for encoder-decoders; 0: one docid token for all."""

    @property
    def special_tokens(self) -> list[str]:
        """The tokens that are added to a tokenizer, in the order of their ids."""
        return [*(f"[D{n}]" for n in range(self.docids)), "[Q]", "[SUBQ]", "[SEP]"] if self.docids else [*SEPARATORS]
