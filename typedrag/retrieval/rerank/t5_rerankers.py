"""Rerankers made of a T5 from the Hugging Face hub: monoT5 and RankT5, which score each passage alone, and LiT5, which
orders windows of passages: RichRAG's baselines (section 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from typedrag.core.records import Passage
from typedrag.retrieval.local_models import accelerator
from typedrag.retrieval.rerank.lm_rerankers import windows
from typedrag.retrieval.rerank.rerankers import ModelReranker

_BATCH = 16


class _T5Reranker(ModelReranker):
    template: ClassVar[str]
    """What the model reads of a passage."""
    most_tokens: ClassVar[int]
    """The tokens of a text that it reads; the passage is cut, so that what follows it stays."""

    def _load(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(self.name, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(self.name, trust_remote_code=False)
        return model.to(accelerator()).eval()

    def _written(self, query: str, text: str, number: int) -> str:
        """The template with as much of the passage as fits."""
        empty = self.template.format(query=query, number=number, text="")
        room = max(0, self.most_tokens - len(self._tokenizer(empty).input_ids))
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        shown = text if len(ids) <= room else self._tokenizer.decode(ids[:room])
        return self.template.format(query=query, number=number, text=shown)

    def _tokens(self, texts: Sequence[str]) -> Any:
        read = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self.most_tokens, return_tensors="pt"
        )
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
            read = self._tokens([self._written(query, text, 1) for text in texts[first : first + _BATCH]])
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
        """The first `k` passages of the order; scores are 1 / place. See `Reranker.rerank`."""
        ranked = list(passages)
        with self._in_turn:
            for start in windows(len(ranked), self.window, self.step) if len(ranked) > 1 else ():
                held = ranked[start : start + self.window]
                ranked[start : start + self.window] = [held[n] for n in self._order(query, [p.titled for p in held])]
        return [replace(p, score=1 / place) for place, p in enumerate(ranked[:k], 1)]

    def _order(self, query: str, texts: Sequence[str]) -> list[int]:
        """The places of the texts, best first."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        read = self._tokens([self._written(query, text, n) for n, text in enumerate(texts, 1)])
        whole = " > ".join(f"[{n}]" for n in range(1, len(texts) + 1))
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
