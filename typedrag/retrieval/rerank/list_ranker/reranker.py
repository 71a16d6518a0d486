"""The list ranker as a `Reranker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from typedrag.errors import InputError, RetrievalError
from typedrag.records import Passage
from typedrag.retrieval.local_models import accelerator
from typedrag.retrieval.rerank.list_ranker.folder import ListRanker, load_list_ranker
from typedrag.retrieval.rerank.list_ranker.model import States
from typedrag.retrieval.rerank.list_ranker.texts import Candidates, Reader
from typedrag.retrieval.rerank.rerankers import ModelReranker


class ListReranker(ModelReranker):
    """Ranks passages as a list, each in view of those before it (RichRAG, section 3.4).

    Scores are 1 / place: only the places of a list mean something.

    Args:
        name: A folder that `typedrag ranker train` wrote.

    Raises:
        RetrievalError: If it cannot be loaded.
    """

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The list of `k` passages; see `Reranker.rerank`."""
        return self.rerank_by_aspects(query, passages, k, {})

    def rerank_by_aspects(
        self,
        query: str,
        passages: Sequence[Passage],
        k: int,
        aspects: Mapping[str, Sequence[str]],
        *,
        repeat: bool = False,
    ) -> list[Passage]:
        """The list of `k` passages; see `AspectReranker.rerank_by_aspects`."""
        if not passages or k < 1:
            return []
        texts = [p.titled for p in passages]
        candidates = Candidates(query, texts, [tuple(aspects.get(p.id, ())) for p in passages])
        with self._in_turn:
            order = write_list(self._model, candidates, k, repeat=repeat)
        return [replace(passages[n], score=1 / place) for place, n in enumerate(order, 1)]

    def _load(self) -> Any:
        try:
            ranker = load_list_ranker(Path(self.name))
        except InputError as error:  # a folder that a program names, not a user's argument
            raise RetrievalError(error.problem, error.mend) from None
        ranker.model.to(accelerator())
        return ranker


def write_list(ranker: ListRanker, candidates: Candidates, k: int, *, repeat: bool = False) -> list[int]:
    """The positions of the candidates in the ranker's list, best first."""
    written: list[int] = ranker.model.write(encode(ranker, candidates), k, repeat=repeat)[0].tolist()
    return written


@torch.no_grad()
def encode(ranker: ListRanker, candidates: Candidates) -> States:
    """The states of one pool, without gradients and dropout."""
    ranker.model.eval()
    reader = Reader(ranker.tokenizer, ranker.settings)
    sequences = reader.read(candidates)
    device = ranker.model.chosen.weight.device
    ids, mask = reader.pad(sequences.ids)
    encoded = ranker.model.encode(ids.to(device), mask.to(device), torch.tensor(sequences.pooled, device=device))
    return ranker.model.gather(encoded, [len(candidates.passages)])
