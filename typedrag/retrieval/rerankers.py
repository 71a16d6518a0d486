"""Rerankers, by spec: `none`, `bi-encoder[:NAME]`, `cross-encoder[:NAME]`, `monot5:NAME`, `rankt5:NAME`, `lit5:NAME`,
`list:FOLDER`, `lm-pointwise`, `lm-listwise`.

A NAME is a model that `typedrag models` knows, a folder, or a name on the Hugging Face hub; a
FOLDER holds a ranker that `typedrag research ranker train` made. The last two ask the LM in use. An installed package
adds `KIND[:NAME]` by an entry point of `typedrag.rerankers`, a callable that takes NAME, which may be empty.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy, Spec, SpecGrammar
from typedrag.files.text_files import hash_files
from typedrag.retrieval.encoder import default_prompts
from typedrag.retrieval.local_models import LocalModel, accelerator, loading, local_model, locate_model
from typedrag.retrieval.protocols import Reranker
from typedrag.text.words import normal_form

RERANKERS = SpecGrammar(
    "reranker",
    "none", "bi-encoder[:NAME]", "cross-encoder[:NAME]", "monot5:NAME", "rankt5:NAME", "lit5:NAME", "list:FOLDER",
    "lm-pointwise", "lm-listwise",
    group="rerankers",
)  # fmt: skip
BI_ENCODER = "all-minilm-l6-v2"
KEPT_EMBEDDINGS = 4096  # embeddings that a bi-encoder keeps: those of MiniLM take 6 MB
CROSS_ENCODER = "BAAI/bge-reranker-large"  # the reranker of Typed-RAG (appendix B.3)
_BATCH = 16


def open_reranker(spec: str) -> Reranker:
    """The reranker that a spec names, with its model loaded.

    Raises:
        InputError: If the spec has none of the forms.
        RetrievalError: If the model is not on this machine or cannot be loaded.
    """
    parsed = RERANKERS.parse(spec)
    if build := RERANKERS.from_package(parsed):
        return build(parsed.argument)
    from typedrag.retrieval import lm_rerankers

    match parsed:
        case Spec("none"):
            return NoReranker()
        case Spec("bi-encoder", name):
            return BiEncoderReranker(locate_model(name or BI_ENCODER))
        case Spec("cross-encoder", name):
            return CrossEncoderReranker(locate_model(name or CROSS_ENCODER))
        case Spec("monot5", name):
            return MonoT5Reranker(locate_model(name))
        case Spec("rankt5", name):
            return RankT5Reranker(locate_model(name))
        case Spec("lit5", name):
            return LiT5Reranker(locate_model(name))
        case Spec("list", folder):
            from typedrag.retrieval.list_ranker import ListReranker

            return ListReranker(locate_model(folder))
        case Spec("lm-pointwise"):
            return lm_rerankers.PointwiseLMReranker()
        case _:
            return lm_rerankers.ListwiseLMReranker()


def shared_reranker(spec: str) -> Any:
    with _shared(spec) as reranker:  # one thread loads it; a reranker sees to its own turns
        return reranker


_shared = local_model(open_reranker)


def cosines(text: str, others: Sequence[str], model: str = BI_ENCODER) -> list[float]:
    """The cosines between the embedding of a text and those of others, in their order; 0 where either text is blank.

    They are from -1 to 1, and seldom below 0. MiniLM reads the first 256 tokens of each, about 200 words. A model with
    prompts embeds the text as a query, the others as passages.
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
    RERANKERS.parse(spec)


def reranker_identity(spec: str) -> dict[str, str]:
    """Values that tell a reranker's results from another's: its spec, and the digest of a user's folder."""
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

    chooses = False  # see `Reranker`

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        return list(passages[:k])


class ModelReranker(NoDeepcopy):
    """A reranker with a model of its own, in a folder or on the hub; by default it scores passages for a query."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._in_turn = LocalModel(self._load)
        hint = "Check the name and the network, give a folder, or use --reranker bi-encoder or none"
        with loading(f"reranker model '{name}'", hint), self._in_turn as model:
            self._model = model

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        if not passages:
            return []
        with self._in_turn:
            scores = self._score(normal_form(query), [normal_form(p.titled) for p in passages])
        scored = [replace(p, score=float(s)) for p, s in zip(passages, scores, strict=True)]
        return sorted(scored, key=lambda p: -p.score)[:k]

    def _load(self) -> Any:
        raise NotImplementedError

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        raise NotImplementedError


class BiEncoderReranker(ModelReranker):
    """Ranks passages by the cosine between the embeddings of query and passage, with the prompts of an `Encoder`.

    The last embeddings are kept: a pool ranked for several queries holds the same passages again and again.
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

        pairs = [(normal_form(query), normal_form(p.titled)) for p in passages]
        with self._in_turn:
            return [float(p) for p in self._model.predict(pairs, activation_fn=Sigmoid(), show_progress_bar=False)]

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        return self._model.predict([(query, text) for text in texts], show_progress_bar=False).tolist()


class _T5Reranker(ModelReranker):
    """A T5 of the hub: RichRAG's baselines (section 4.2)."""

    template: ClassVar[str]
    """What the model reads of a passage."""
    most_tokens: ClassVar[int]
    """The tokens of a text that it reads; the passage is cut, so that what follows it stays."""

    def _load(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(self.name, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(self.name, trust_remote_code=False)
        return model.to(accelerator()).eval()

    def _read(self, query: str, texts: Sequence[str], numbers: Sequence[int]) -> Any:
        written = []
        for text, number in zip(texts, numbers, strict=True):
            empty = self.template.format(query=query, number=number, text="")
            room = max(0, self.most_tokens - len(self._tokenizer(empty).input_ids))
            ids = self._tokenizer(text, add_special_tokens=False).input_ids
            shown = text if len(ids) <= room else self._tokenizer.decode(ids[:room])
            written.append(self.template.format(query=query, number=number, text=shown))
        read = self._tokenizer(written, padding=True, truncation=True, max_length=self.most_tokens, return_tensors="pt")
        return read.to(self._model.device)


class _PointwiseT5(_T5Reranker):
    most_tokens = 512
    scored: ClassVar[tuple[str, ...]]
    """The tokens that score a passage as the first that the model may write: one by its logit, or one by its
    probability against another."""

    def _load(self) -> Any:
        model = super()._load()
        self._ids = self._tokenizer.convert_tokens_to_ids(list(self.scored))
        if self._tokenizer.unk_token_id in self._ids:
            raise ValueError(f"it has no tokens {' and '.join(self.scored)}")
        return model

    def _score(self, query: str, texts: list[str]) -> Sequence[float]:
        import torch

        scores: list[float] = []
        for first in range(0, len(texts), _BATCH):
            batch = texts[first : first + _BATCH]
            read = self._read(query, batch, [1] * len(batch))
            begun = torch.full_like(read.input_ids[:, :1], self._model.config.decoder_start_token_id)
            with torch.inference_mode():
                logits = self._model(**read, decoder_input_ids=begun).logits[:, 0, self._ids].float()
            scores += (logits.softmax(-1) if len(self._ids) > 1 else logits)[:, 0].tolist()
        return scores


class MonoT5Reranker(_PointwiseT5):
    """Ranks passages by the probability of `true` against `false` (Nogueira et al. 2020,
    https://arxiv.org/abs/2003.06713), such as castorini/monot5-base-msmarco.
    """

    template = "Query: {query} Document: {text} Relevant:"
    scored = ("▁true", "▁false")


class RankT5Reranker(_PointwiseT5):
    """Ranks passages by the logit of a token that means nothing else (Zhuang et al. 2023,
    https://arxiv.org/abs/2210.10634), such as Soyoung97/RankT5-base.
    """

    template = "Query: {query} Document: {text}"
    scored = ("<extra_id_10>",)


class LiT5Reranker(_T5Reranker):
    """Orders passages in a sliding window, each read alone before one decoder writes the order of all (LiT5-Distill,
    Tamber et al. 2023, https://arxiv.org/abs/2312.16098), such as castorini/LiT5-Distill-base.

    Passages that it does not name come behind those it names, in the order they had.
    """

    template = "Search Query: {query} Passage: [{number}] {text} Relevance Ranking: "
    most_tokens = 300
    window: ClassVar[int] = 20
    step: ClassVar[int] = 10

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        ranked = list(passages)
        with self._in_turn:
            for start in windows(len(ranked), self.window, self.step) if len(ranked) > 1 else ():
                held = ranked[start : start + self.window]
                texts = [normal_form(p.titled) for p in held]
                ranked[start : start + self.window] = [held[n] for n in self._order(normal_form(query), texts)]
        return [replace(p, score=1 / place) for place, p in enumerate(ranked[:k], 1)]

    def _order(self, query: str, texts: Sequence[str]) -> list[int]:
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        numbers = range(1, len(texts) + 1)
        read = self._read(query, texts, numbers)
        whole = " > ".join(f"[{n}]" for n in numbers)
        with torch.inference_mode():
            states = self._model.get_encoder()(**read).last_hidden_state
            written = self._model.generate(
                encoder_outputs=BaseModelOutput(states.reshape(1, -1, states.shape[-1])),
                attention_mask=read.attention_mask.reshape(1, -1),
                max_new_tokens=len(self._tokenizer(whole).input_ids),
                do_sample=False,
            )
        return parse_order(self._tokenizer.decode(written[0], skip_special_tokens=True), len(texts))


def parse_order(order: str, count: int) -> list[int]:
    """The places of so many texts, from 0: first those that a written order names, from 1, then the others.

    Example:
        >>> parse_order("[3] > [1] > [3] > [9]", count=4)
        [2, 0, 1, 3]
    """
    numbers = dict.fromkeys(map(int, re.findall(r"\d+", order)))
    named = [number - 1 for number in numbers if 0 < number <= count]
    return [*named, *(place for place in range(count) if place not in named)]


def windows(count: int, size: int, step: int) -> list[int]:
    """The starts of the windows over a list, the last one first; the first window starts at 0.

    Example:
        >>> windows(20, size=10, step=5), windows(12, size=10, step=5), windows(7, size=10, step=5)
        ([10, 5, 0], [2, 0], [0])
    """
    starts = list(range(count - size, 0, -step))
    return [*starts, 0]
