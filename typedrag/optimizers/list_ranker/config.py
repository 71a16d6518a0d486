"""What the training of a list ranker is made of: a closed model, as flags or a YAML file give it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from typedrag.experiments.evaluate.config import CLOSED, LMConfig, TrackingConfig
from typedrag.optimizers.list_ranker.settings import PreferenceSettings, TrainingSettings
from typedrag.retrieval.rerank.list_ranker.settings import ListRankerSettings


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
