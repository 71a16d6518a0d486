"""Rerankers, by spec: `none`, `bi-encoder[:NAME]`, `cross-encoder[:NAME]`, `monot5:NAME`, `rankt5:NAME`, `lit5:NAME`,
`list:FOLDER`, `lm-pointwise`, `lm-listwise`.

A NAME is a model that `typedrag models` knows, a folder, or a name on the Hugging Face hub; a
FOLDER holds a ranker that `typedrag research ranker train` made. The last two ask the LM in use. An installed package
adds `KIND[:NAME]` by an entry point of `typedrag.rerankers`, a callable that takes NAME, which may be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy, Spec, SpecGrammar
from typedrag.files.digests import hash_files
from typedrag.retrieval.encoder import default_prompts
from typedrag.retrieval.local_models import LocalModel, loading, local_model, locate_model
from typedrag.retrieval.protocols import Reranker

RERANKERS = SpecGrammar(
    "reranker",
    "none", "bi-encoder[:NAME]", "cross-encoder[:NAME]", "monot5:NAME", "rankt5:NAME", "lit5:NAME", "list:FOLDER",
    "lm-pointwise", "lm-listwise",
    group="rerankers",
)  # fmt: skip
BI_ENCODER = "all-minilm-l6-v2"
KEPT_EMBEDDINGS = 4096
"""Embeddings that a bi-encoder keeps: those of MiniLM take 6 MB."""
CROSS_ENCODER = "BAAI/bge-reranker-large"
"""The reranker of Typed-RAG (appendix B.3)."""


def open_reranker(spec: str) -> Reranker:
    """The reranker that a spec names, with its model loaded.

    Raises:
        InputError: If the spec has none of the forms.
        RetrievalError: If the model is not on this machine or cannot be loaded.
    """
    parsed = RERANKERS.parse(spec)
    if build := RERANKERS.from_package(parsed):
        return build(parsed.argument)
    from typedrag.retrieval.rerank import lm_rerankers, t5_rerankers

    match parsed:
        case Spec("none"):
            return NoReranker()
        case Spec("bi-encoder", name):
            return BiEncoderReranker(locate_model(name or BI_ENCODER))
        case Spec("cross-encoder", name):
            return CrossEncoderReranker(locate_model(name or CROSS_ENCODER))
        case Spec("monot5", name):
            return t5_rerankers.MonoT5Reranker(locate_model(name))
        case Spec("rankt5", name):
            return t5_rerankers.RankT5Reranker(locate_model(name))
        case Spec("lit5", name):
            return t5_rerankers.LiT5Reranker(locate_model(name))
        case Spec("list", folder):
            from typedrag.retrieval.rerank.list_ranker.ranker import ListReranker

            return ListReranker(locate_model(folder))
        case Spec("lm-pointwise"):
            return lm_rerankers.PointwiseLMReranker()
        case _:
            return lm_rerankers.ListwiseLMReranker()


def shared_reranker(spec: str) -> Any:
    """The reranker of this spec, shared by all callers in this process."""
    with _shared(spec) as reranker:  # one thread loads it; a reranker sees to its own turns
        return reranker


_shared = local_model(open_reranker)


def cosines(text: str, others: Sequence[str], model: str = BI_ENCODER) -> list[float]:
    """The cosines between the embedding of a text and those of others, in their order; 0 where either text is blank.

    Args:
        text: MiniLM reads its first 256 tokens, about 200 words. A model with prompts embeds it as a query.
        others: The same length of them is read; a model with prompts embeds them as passages.
        model: A bi-encoder: one that `typedrag models` knows, a folder, or a name on the hub.

    Returns:
        Values from -1 to 1, seldom below 0.
    """
    written = [Passage(str(n), other) for n, other in enumerate(others) if text.strip() and other.strip()]
    scores = [0.0] * len(others)
    if written:
        for scored in shared_reranker(f"bi-encoder:{model}").rerank(text, written, len(written)):
            scores[int(scored.id)] = scored.score
    return scores


def reader(reranker: Reranker, passage_words: int) -> Reranker:
    """The reranker for a program: one that asks an LM shows it as much of a passage as the program does."""
    reading = getattr(reranker, "reading", None)
    return reading(passage_words) if reading else reranker


def check_reranker(spec: str) -> None:
    """Refuse a spec that has none of the forms, without loading anything.

    Raises:
        InputError: If the spec has none of the forms.
    """
    RERANKERS.parse(spec)


def reranker_identity(spec: str) -> dict[str, str]:
    """Values, for JSON, that tell a reranker's results from another's: its spec, and the digest of a user's
    folder.
    """
    name = RERANKERS.parse(spec).argument
    folder = Path(name).expanduser()
    if not name or not folder.is_dir():
        return {"reranker": spec}
    try:
        return {"reranker": spec, "reranker files": hash_files(folder)}
    except OSError as error:
        raise RetrievalError(f"reranker '{spec}' cannot be read: {error}", "Give a folder that can be read") from error


class NoReranker:
    """Keeps the incoming order and scores."""

    chooses = False
    """See `Reranker`."""

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The first `k` passages; see `Reranker.rerank`."""
        return list(passages[:k])


class ModelReranker(NoDeepcopy):
    """A reranker with a model of its own; by default the model scores passages for a query.

    Args:
        name: A folder or a name on the hub.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._in_turn = LocalModel(self._load)
        hint = "Check the name and the network, give a folder, or use --reranker bi-encoder or none"
        with loading(f"reranker model '{name}'", hint), self._in_turn as model:
            self._model = model

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` passages with the highest scores; see `Reranker.rerank`."""
        if not passages:
            return []
        with self._in_turn:
            scores = self._score(query, [p.titled for p in passages])
        scored = [replace(p, score=float(s)) for p, s in zip(passages, scores, strict=True)]
        return sorted(scored, key=lambda p: -p.score)[:k]

    def _load(self) -> Any:
        raise NotImplementedError

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        raise NotImplementedError


class BiEncoderReranker(ModelReranker):
    """Ranks passages by the cosine between the embeddings of query and passage, with the same prompts as an `Encoder`
    of the model.

    The last embeddings are kept: a pool ranked for several queries holds the
    same passages again and again.
    """

    def _load(self) -> Any:
        from sentence_transformers import SentenceTransformer

        self._embedded: dict[str, Any] = {}
        model = SentenceTransformer(self.name, trust_remote_code=False)
        self._of_query, self._of_passage = default_prompts(self.name, model.prompts)
        return model

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        # kept with its prompt: a text's vector as a passage differs from its vector as a query
        query_text, *read = [self._of_query + query, *(self._of_passage + text for text in texts)]
        texts_to_embed = list(dict.fromkeys([query_text, *read]))
        if new := [text for text in texts_to_embed if text not in self._embedded]:
            embeddings = self._model.encode(new, prompt="", normalize_embeddings=True, show_progress_bar=False)
            self._embedded.update(zip(new, embeddings, strict=True))
        scores = [float(self._embedded[text] @ self._embedded[query_text]) for text in read]
        for text in list(self._embedded)[:-KEPT_EMBEDDINGS]:
            del self._embedded[text]
        return scores


class CrossEncoderReranker(ModelReranker):
    """Ranks passages by a model that reads query and passage together (Typed-RAG, section 3)."""

    def _load(self) -> Any:
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(self.name, trust_remote_code=False)
        if model.num_labels != 1:  # a classifier, of entailment for instance
            raise ValueError(f"it gives {model.num_labels} scores, not one")
        return model

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The probability that each passage is relevant: the sigmoid of its score, whatever the model's files name."""
        from torch.nn import Sigmoid

        pairs = [(query, p.titled) for p in passages]
        with self._in_turn:
            return [float(p) for p in self._model.predict(pairs, activation_fn=Sigmoid(), show_progress_bar=False)]

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        return self._model.predict([(query, text) for text in texts], show_progress_bar=False).tolist()
