"""Small BERTs, saved for models to be loaded from."""

from collections.abc import Sequence
from pathlib import Path

WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun".split()


def save_tokenizer(folder: Path, words: Sequence[str]) -> int:
    """A tokenizer that knows the words; gives the size of its vocabulary."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = [*special.values(), "[MASK]", *words]
    tokenizer = BertWordPieceTokenizer({word: number for number, word in enumerate(vocabulary)})
    PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **special).save_pretrained(folder)
    return len(vocabulary)


def save_bert(folder: Path, labels: int, seed: int = 7, words: Sequence[str] = ("on", *WORDS)) -> str:
    """A BERT of random weights, small enough for tests, with a tokenizer that knows the words."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    size = save_tokenizer(folder, words)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    # weights wide enough that scores of different passages are far apart
    config = BertConfig(vocab_size=size, initializer_range=0.4, **sizes)
    if labels:
        config.num_labels = labels
        BertForSequenceClassification(config).save_pretrained(folder)
    else:
        BertModel(config).save_pretrained(folder)
    return str(folder)
