"""What the training of a list ranker is made of: closed models, as flags or a YAML file give them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from typedrag.experiments.evaluate.config import CLOSED, LMConfig, TrackingConfig
from typedrag.retrieval.rerank.list_ranker.settings import ListRankerSettings


class TrainingSettings(BaseModel):
    """How a list ranker is trained."""

    model_config = CLOSED

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

    model_config = CLOSED

    samples: PositiveInt = 8
    """Lists drawn for each pool, beside the likeliest one."""
    threshold: NonNegativeFloat = 0.1
    """By how much the rewards of a pair differ at least (RichRAG, appendix B: 0.1)."""
    threads: PositiveInt = 8
    """Rewards asked for at once."""


class RankerTrainConfig(BaseModel):
    """A start, data, and how a list ranker is trained."""

    model_config = CLOSED

    data: Path
    """Pools to train on."""
    validation: Path | None = None
    """Pools by which the best of the saved weights are chosen; by default the last ones are kept. None may
    be of a question that is trained on."""
    start: str
    """An encoder or encoder-decoder: a model that `typedrag models` knows, a folder, or a name of the
    hub; a list ranker's folder; or `scratch`."""
    stage: Literal["sft", "dpo"] = "sft"
    """Silver lists, or then preferences, which go on from a list ranker."""
    ranker: ListRankerSettings | None = None
    """Of a new ranker; by default those that suit the start."""
    training: TrainingSettings = TrainingSettings()
    """How."""
    preferences: PreferenceSettings = PreferenceSettings()
    """How pairs are made."""
    reward: Literal["generator", "ncom"] = "generator"
    """What a list is worth: the answer that the LM writes from it (RichRAG, eq. 11), or, without an LM,
    how comprehensive it is."""
    lm: LMConfig = LMConfig()
    """The generator."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""
