"""The configuration of a list ranker's training, which commands read without torch."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from typedrag.experiments.config import CLOSED, LMConfig, TrackingConfig
from typedrag.retrieval.list_ranker_settings import ListRankerSettings


class TrainingSettings(BaseModel):
    """Settings of a list ranker's training."""

    model_config = CLOSED

    epochs: PositiveFloat = 3.0
    """Passes over the pools, or over the pairs."""
    learning_rate: PositiveFloat | None = None
    """The highest learning rate, reached after the warm-up; by default the paper's (RichRAG, appendix B): 5e-5
    for silver lists, 3e-6 for preferences."""
    new_learning_rate: PositiveFloat | None = None
    """The learning rate of weights that no pretrained model has: a small decoder, and the layers that read the
    question and the passages chosen before; by default `learning_rate`. These weights begin at zero and hardly
    move in a few hundred steps at that rate."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of all steps in which the learning rate rises; in the others it falls to 0."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's weight decay."""
    batch: PositiveInt = 8
    """Pools, or pairs, in a step (RichRAG, appendix B: 64, and 32 for preferences)."""
    at_once: PositiveInt = 1
    """Pools in memory at the same time; gradients are accumulated over a batch."""
    candidates: PositiveInt | None = None
    """Passages of a pool in a step; by default 32 for silver lists, and the whole pool for preferences,
    since their lists were written over it (RichRAG, eq. 12). From a larger pool, candidates for silver lists
    are drawn again in each epoch, so that lists vary; those of a pair are drawn once."""
    full_lists: bool = False
    """Continue a silver list to its length where no passage adds anything, as in the paper."""
    frozen_layers: NonNegativeInt = 0
    """Layers of the encoder to freeze, from its embeddings up; frozen layers train at no cost."""
    beta: PositiveFloat = 0.1
    """The weight of log-probability margins in the loss of preferences (RichRAG, eq. 12)."""
    minutes: PositiveFloat | None = None
    """Minutes after which the training stops; it can be continued."""
    saves: PositiveInt = 1
    """Checkpoints, each validated, in an epoch."""
    bf16: bool = False
    """Calculate in bfloat16, on devices that can."""
    seed: int = 0
    """The seed of all random choices."""


class PreferenceSettings(BaseModel):
    """Settings by which pairs of lists are made (RichRAG, section 3.4.2)."""

    model_config = CLOSED

    pairs: Literal["us3", "random"] = "us3"
    """`us3`: the likeliest list with each drawn one, if their rewards differ enough. `random`: any two lists, without
    a threshold (RichRAG, section 4.4: w/o US3)."""
    samples: PositiveInt = 8
    """Lists drawn for each pool, besides the likeliest one."""
    threshold: NonNegativeFloat = 0.1
    """The least difference between the rewards of a pair of US³ (RichRAG, appendix B: 0.1)."""
    most_pairs: PositiveInt | None = None
    """Pairs to train on, drawn by the seed if there are more; by default all (RichRAG, appendix B: 6,000)."""
    answer_prompt: Literal["cited", "plain"] = "cited"
    """The prompt of the answers that are rewarded: see `Options.answer_prompt`."""
    threads: PositiveInt = 8
    """Rewards computed at once."""


class RankerTrainConfig(BaseModel):
    """The start, the data and the settings of a list ranker's training."""

    model_config = CLOSED

    data: Path
    """Pools to train on."""
    validation: Path | None = None
    """Pools that choose the best of the saved weights; by default the last weights are kept. Their questions
    may not be in the training data."""
    start: str
    """An encoder or encoder-decoder (a model that `typedrag models` knows, a folder, or a name on the hub), a
    list ranker's folder, or `scratch`."""
    stage: Literal["sft", "dpo"] = "sft"
    """`sft` trains on silver lists; `dpo` then trains a list ranker further, on preferences."""
    ranker: ListRankerSettings | None = None
    """Settings of a new ranker; by default those that suit the start."""
    training: TrainingSettings = TrainingSettings()
    """Settings of the training."""
    preferences: PreferenceSettings = PreferenceSettings()
    """Settings by which pairs are made."""
    reward: Literal["generator", "ncom"] = "generator"
    """The reward of a list: the quality of the answer that the LM writes from it (RichRAG, eq. 11), or,
    without an LM, the list's comprehensiveness."""
    lm: LMConfig = LMConfig()
    """The generator."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""
