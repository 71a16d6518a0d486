"""Encoders for tests: one of random weights that is quick to load, and the real small one."""

from pathlib import Path

import pytest

from tests.retrieval.berts import save_bert
from typedrag.lms import models
from typedrag.retrieval import Encoder

MINILM = "all-minilm-l6-v2"
WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun query passage".split()


def save_encoder(folder: Path, *, seed: int = 7, prompts: dict[str, str] | None = None, dot: bool = False) -> str:
    """A sentence-transformers model of random weights whose tokenizer knows the words."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    bert = save_bert(folder / "bert", labels=0, seed=seed, words=WORDS)
    model = SentenceTransformer(modules=[Transformer(bert), Pooling(16)], device="cpu", prompts=prompts)
    if dot:
        model.similarity_fn_name = "dot"
    model.save(str(folder / "model"))
    return str(folder / "model")


def minilm() -> Encoder:
    """The real small encoder, where it was fetched."""
    if not models.MODELS[MINILM].present:
        pytest.skip(f"needs the model: typedrag models fetch {MINILM}")
    return Encoder(MINILM)
