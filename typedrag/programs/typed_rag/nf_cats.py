"""The architecture of `Lurunchik/nf-cats`, which transformers does not have. Imports torch."""

from typing import Any

from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel, RobertaPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.roberta.modeling_roberta import RobertaPooler

TOKENIZER = "deepset/roberta-base-squad2"  # the model that it was trained from; its own repository has no tokenizer

_HIDDEN = 512


class NFCats(RobertaPreTrainedModel):
    """RoBERTa, a second pooler, and a feed-forward classifier (Bolotova et al. 2022).

    Modules are named like the weights on the hub.
    """

    def __init__(self, config: RobertaConfig) -> None:
        super().__init__(config)
        self.embedder = RobertaModel(config, add_pooling_layer=True)
        self.pooler = RobertaPooler(config)
        self.feedforward = _Feedforward(config)
        self.post_init()

    def forward(self, **tokens: Any) -> SequenceClassifierOutput:
        hidden = self.embedder(**tokens).last_hidden_state
        return SequenceClassifierOutput(logits=self.feedforward(self.pooler(hidden)))


class _Feedforward(nn.Module):
    def __init__(self, config: RobertaConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.linear_layers = nn.ModuleList([nn.Linear(size, size), nn.Linear(size, _HIDDEN)])
        self.classification_layer = nn.Linear(_HIDDEN, len(config.id2label or {}))
        self.activation = nn.Mish()

    def forward(self, pooled: Tensor) -> Tensor:
        for layer in self.linear_layers:
            pooled = self.activation(layer(pooled))
        return self.classification_layer(pooled)
