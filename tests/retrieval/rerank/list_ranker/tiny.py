"""List rankers of a few thousand random weights, with and without a decoder of their own."""

from pathlib import Path

import torch

from typedrag.core.records import Passage
from typedrag.retrieval.list_ranker import ListRanker, start_list_ranker
from typedrag.retrieval.list_ranker_settings import ListRankerSettings

WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun rain snow wind about".split()
PASSAGES = [Passage(f"p{n}", f"{word} {WORDS[n - 3]}", score=9.0 - n) for n, word in enumerate(WORDS[:12])]
KINDS = ("encoder", "t5", "bart")
POOLED = {"encoder": "passage", "t5": "docid", "bart": "passage"}
"""Both ways of pooling, with an encoder-decoder too."""


def save_start(folder: Path, kind: str) -> str:
    """A start as the hub has them: an encoder, or an encoder-decoder."""
    from transformers import (
        BartConfig,
        BartModel,
        BertConfig,
        BertModel,
        DebertaV2Config,
        DebertaV2Model,
        T5Config,
        T5Model,
    )

    scratch = start_list_ranker("scratch", texts=[" ".join(WORDS)])
    size = len(scratch.tokenizer)
    torch.manual_seed(3)
    made = {
        "encoder": lambda: BertModel(
            BertConfig(
                vocab_size=size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                initializer_range=0.4,
            )
        ),
        "deberta": lambda: DebertaV2Model(
            DebertaV2Config(
                vocab_size=size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
                initializer_range=0.4, relative_attention=True, pos_att_type=["p2c", "c2p"],
            )
        ),
        "t5": lambda: T5Model(
            T5Config(vocab_size=size, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_decoder_layers=1, num_heads=2)
        ),
        "bart": lambda: BartModel(
            BartConfig(
                vocab_size=size, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, init_std=0.4,
            )
        ),
    }[kind]()  # fmt: skip
    made.save_pretrained(folder)
    scratch.tokenizer.save_pretrained(folder)
    return str(folder)


def tiny_ranker(folder: Path, kind: str, **settings: object) -> ListRanker:
    """A ranker from such a start, with what was chosen before made to matter, as after some training."""
    wanted = ListRankerSettings(**{"pooling": POOLED[kind], **settings})
    ranker = start_list_ranker(save_start(folder, kind), wanted, seed=5)
    torch.manual_seed(11)
    for weights in filter(None, (ranker.model.chosen, ranker.model.context)):
        torch.nn.init.normal_(weights.weight, std=0.3)
    if kind == "encoder":
        for layer in ranker.model.decoder.layers.layers:
            torch.nn.init.normal_(layer.multihead_attn.out_proj.weight, std=0.3)
            torch.nn.init.normal_(layer.self_attn.out_proj.weight, std=0.3)
    ranker.model.eval()
    return ranker
