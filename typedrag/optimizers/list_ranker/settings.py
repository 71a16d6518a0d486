"""How a list ranker is trained, and its pairs are made: closed models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

_CLOSED = ConfigDict(extra="forbid", frozen=True)


class TrainingSettings(BaseModel):
    """How a list ranker is trained."""

    model_config = _CLOSED

    epochs: PositiveFloat = 3.0
    """Passes over the pools, or over the pairs."""
    learning_rate: PositiveFloat | None = None
    """At its highest, after the warm-up; by default the paper's (RichRAG, appendix B): 5e-5 for silver
    lists, 3e-6 for preferences."""
    new_learning_rate: PositiveFloat | None = None
    """Of what no pretrained model brings along: a small decoder, and what reads the question and the passages
    chosen before. These begin at zero, and get nowhere in a few hundred steps at the rate of the others, which
    is the default."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of all steps in which the learning rate rises; it falls to 0 in the others."""
    weight_decay: NonNegativeFloat = 0.01
    """Of AdamW."""
    batch: PositiveInt = 8
    """Pools, or pairs, of a step (RichRAG, appendix B: 64, and 32 for preferences)."""
    at_once: PositiveInt = 1
    """Pools in memory at the same time; their gradients are summed up to those of a batch."""
    candidates: PositiveInt | None = None
    """Passages of a pool in a step; by default 32 for silver lists, and the whole pool for preferences,
    since their lists were written over it (RichRAG, eq. 12). Of larger pools, those for silver lists are
    drawn anew each time, so that each epoch shows other lists; a pair keeps what was drawn for it."""
    frozen_layers: NonNegativeInt = 0
    """Of the encoder, from its embeddings up: what is frozen costs neither time nor memory to train."""
    beta: PositiveFloat = 0.1
    """Of the loss of preferences."""
    minutes: PositiveFloat | None = None
    """After which the training stops where it stands, so that it can be continued."""
    saves: PositiveInt = 1
    """How often an epoch is saved and validated."""
    bf16: bool = False
    """Whether to calculate in bfloat16, on devices that can."""
    seed: int = 0
    """Of everything that is drawn."""


class PreferenceSettings(BaseModel):
    """How pairs of lists are made (RichRAG, section 3.4.2)."""

    model_config = _CLOSED

    samples: PositiveInt = 8
    """Lists drawn for each pool, beside the likeliest one."""
    threshold: NonNegativeFloat = 0.1
    """By how much the rewards of a pair differ at least (RichRAG, appendix B: 0.1)."""
    threads: PositiveInt = 8
    """Rewards asked for at once."""
