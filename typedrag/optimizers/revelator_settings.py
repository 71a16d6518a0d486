"""Settings of the revelator's training, which the command reads without torch."""

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt


class TrainingSettings(BaseModel):
    """Settings of the revelator's fine-tuning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: PositiveFloat = 1.0
    """Passes over the rows (appendix E: one)."""
    max_steps: PositiveInt | None = None
    """The number of steps, instead of `epochs`."""
    learning_rate: PositiveFloat = 1e-4
    """The highest learning rate (appendix E: 1e-4); it falls as a cosine."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps in which the learning rate rises (appendix E: 10 %)."""
    batch_size: PositiveInt = 8
    """Rows in a batch."""
    accumulate: PositiveInt = 1
    """Batches in a step."""
    lora_rank: PositiveInt = 8
    """The rank of LoRA's matrices (8 in LLaMA-Factory, which the paper trains with)."""
    lora_alpha: PositiveInt = Field(default_factory=lambda data: 2 * data.get("lora_rank", 1))  # 1: rank was refused
    """LoRA's weights are scaled by `lora_alpha` / `lora_rank`; by default twice the rank, as in LLaMA-Factory."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """The dropout of LoRA's layers."""
    max_tokens: PositiveInt = 2048
    """The most tokens of a row; longer rows are left out."""
    checkpoint_every: PositiveInt = 500
    """Steps between checkpoints, from which a killed training resumes; at most a tenth of all steps."""
    gradient_checkpointing: bool = False
    """Saves memory, costs time."""
    merge: bool = True
    """Also save the whole model, which a server can load as it is."""
    seed: int = 0
    """The seed of LoRA's weights and of the order of the rows."""
