"""Small T5s, saved as the hub has monoT5, RankT5 and LiT5."""

from pathlib import Path

WORDS = "bread dough yeast oven steam crust flour water".split()


def save_t5(folder: Path, seed: int = 1, tokens: tuple[str, ...] = ("▁true", "▁false", "<extra_id_10>")) -> str:
    """A T5 of random weights with a tokenizer of whole words, and of the numbers that LiT5 writes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    numbers = [f"▁[{n}]" for n in range(1, 31)]
    vocabulary = ["<pad>", "</s>", "<unk>", *tokens, "▁Query:", "▁Document:", *numbers, *(f"▁{w}" for w in WORDS)]
    tokenizer = Tokenizer(models.Unigram([(token, -1.0) for token in vocabulary], unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=len(vocabulary), decoder_start_token_id=0, initializer_factor=3.0, **sizes)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return str(folder)
