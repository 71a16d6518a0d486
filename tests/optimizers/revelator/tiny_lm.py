"""A causal LM of a few thousand random weights, with a tokenizer for the prompts it is to learn."""

from collections.abc import Iterable
from pathlib import Path


def make_tiny_lm(folder: Path, texts: Iterable[str], *, template: str | None = None) -> Path:
    """Save a Llama of one layer, whose tokenizer knows the words of some texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(wrapped),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.3,  # small weights, as is usual, would leave LoRA nothing to turn
        eos_token_id=wrapped.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
