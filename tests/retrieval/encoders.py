"""Encoders for tests: one of random weights that is quick to load, and the real small one."""

from pathlib import Path

import pytest

from typedrag.lms import models
from typedrag.retrieval import Encoder

MINILM = "all-minilm-l6-v2"
WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun query passage".split()


def save_encoder(folder: Path, *, seed: int = 7, prompts: dict[str, str] | None = None, dot: bool = False) -> str:
    """A sentence-transformers model of random weights whose tokenizer knows the words."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = [*special.values(), "[MASK]", *WORDS]
    tokenizer = BertWordPieceTokenizer({word: number for number, word in enumerate(vocabulary)})
    bert = folder / "bert"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **special).save_pretrained(bert)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(vocabulary), initializer_range=0.4, **sizes)).save_pretrained(bert)
    model = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(16)], device="cpu", prompts=prompts)
    if dot:
        model.similarity_fn_name = "dot"
    model.save(str(folder / "model"))
    return str(folder / "model")


def minilm() -> Encoder:
    """The real small encoder, where it was fetched."""
    if not models.MODELS[MINILM].present:
        pytest.skip(f"needs the model: typedrag models fetch {MINILM}")
    return Encoder(MINILM)
