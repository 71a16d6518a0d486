"""The network of the list ranker (RichRAG, section 3.4).

    each candidate ─► encoder ─► pooled state e ─┐
    the question   ─► encoder ─► pooled state q ─┴► decoder ─► h at each place ─► softmax(h · e / temperature)

All candidates are encoded at the same time, each with the question but without the others; what
they are to one another the decoder sees, over one state for each of them. The output head has no
weights of its own: it compares the decoder's state with those of the candidates (eq. 7).

The paper begins a list with a start token and goes on with docid tokens, whose embeddings are
learned for each place in the pool. Here the decoder begins with the question's state, and goes on
with it and the state of the passage chosen last. So the order and the number of candidates do not
matter, and a sentence encoder without any training ranks by cosine.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from typedrag.retrieval.rerank.list_ranker.settings import ListRankerSettings

AT_ONCE = {"cpu": 8, "cuda": 256}
"""Sequences that are encoded at the same time: on a CPU few, since that fills it already."""
NOTHING = -1
"""In the place of a passage, where a list is shorter than others beside it."""


class States(NamedTuple):
    """What the encoder makes of P pools of at most M candidates.

    Attributes:
        questions: P x dimensions.
        candidates: P x M x dimensions.
        there: P x M; false where a pool has fewer candidates.
    """

    questions: Tensor
    candidates: Tensor
    there: Tensor


class SmallDecoder(nn.Module):
    """A decoder for encoders that come without one; before any training it changes nothing.

    Args:
        size: Dimensions of a state.
        layers: How many.
        heads: Of its attention.
        dropout: Share of activations that are left out in training.
    """

    def __init__(self, size: int, layers: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(
            size, heads, 4 * size, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, layers) if layers else None
        for made in self.layers.layers if self.layers else ():
            for last in (made.self_attn.out_proj, made.multihead_attn.out_proj, made.linear2):
                nn.init.zeros_(last.weight)
                nn.init.zeros_(last.bias)

    def forward(self, inputs: Tensor, states: Tensor, there: Tensor) -> Tensor:
        """The decoder's states; each depends on the inputs up to its own place."""
        if self.layers is None:
            return inputs
        later = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool, device=inputs.device).triu(1)
        decoded: Tensor = self.layers(inputs, states, tgt_mask=later, memory_key_padding_mask=~there)
        return decoded


class PretrainedDecoder(nn.Module):
    """The decoder of an encoder-decoder of transformers, without its vocabulary.

    Args:
        decoder: Such as T5's.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        decoder.set_input_embeddings(None)  # type: ignore[operator]
        self.decoder = decoder

    def forward(self, inputs: Tensor, states: Tensor, there: Tensor) -> Tensor:
        """As of `SmallDecoder`."""
        decoded: Tensor = self.decoder(
            inputs_embeds=inputs,
            encoder_hidden_states=states,
            encoder_attention_mask=there.long(),
            use_cache=False,
        ).last_hidden_state
        return decoded


class ListRankerModel(nn.Module):
    """Encoder, decoder, and the lists they write.

    Args:
        encoder: Of transformers: gives a last hidden state.
        decoder: `SmallDecoder` or `PretrainedDecoder`.
        size: Dimensions of a state.
        settings: Of the ranker.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, size: int, settings: ListRankerSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.settings = settings
        self.chosen = nn.Linear(size, size, bias=False)
        """What a passage that was chosen means for the next choice; before any training nothing."""
        nn.init.zeros_(self.chosen.weight)
        self.context = nn.Linear(size, size, bias=False) if settings.pooling == "passage" else None
        """The share of what stands behind a passage in its state; before any training none."""
        if self.context is not None:
            nn.init.zeros_(self.context.weight)

    def encode(self, ids: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """One state for each sequence; those of like length are encoded at once, since padding costs time too.

        Args:
            ids: Sequences x tokens.
            mask: Which of them are there.
            pooled: Sequences x 2: first and last position, exclusive, of what is pooled.
        """
        lengths = mask.sum(dim=1)
        by_length = lengths.argsort(stable=True)
        states = []
        for part in by_length.split(AT_ONCE["cuda" if ids.is_cuda else "cpu"]):
            width = int(lengths[part[-1]])
            states.append(self._encode(ids[part, :width], mask[part, :width], pooled[part]))
        return torch.cat(states)[by_length.argsort()]

    def _encode(self, ids: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """The mean over what is pooled, and the share of what stands behind it."""
        places = torch.arange(ids.shape[1], device=ids.device)
        pools = (places >= pooled[:, :1]) & (places < pooled[:, 1:])
        if self.context is None:
            return _mean(self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state, pools)
        there = mask.bool()
        sees = there[:, None] & (pools[:, None] | ~pools[:, :, None])
        blocked = torch.zeros(sees.shape, dtype=self.chosen.weight.dtype, device=ids.device)
        blocked = blocked.masked_fill(~sees, torch.finfo(blocked.dtype).min)[:, None]
        hidden = self.encoder(input_ids=ids, attention_mask=blocked).last_hidden_state
        state: Tensor = _mean(hidden, pools) + self.context(_mean(hidden, there & ~pools))
        return state

    def gather(self, encoded: Tensor, sizes: list[int]) -> States:
        """The states of pools that were encoded one after the other, each with its question first.

        Args:
            encoded: Sequences x dimensions.
            sizes: Candidates of each pool.
        """
        parts = encoded.split([1 + size for size in sizes])
        candidates = nn.utils.rnn.pad_sequence([part[1:] for part in parts], batch_first=True)
        counts = torch.tensor(sizes, device=encoded.device)
        there = torch.arange(candidates.shape[1], device=encoded.device) < counts[:, None]
        return States(torch.stack([part[0] for part in parts]), candidates, there)

    def scores(self, states: States, lists: Tensor) -> Tensor:
        """The output head at each place of lists, before the softmax, all passages allowed (eq. 7).

        Args:
            states: Of P pools.
            lists: P x K: the passages chosen at each place; `NOTHING` where a list has ended. What is
                chosen at a place only matters to those after it.

        Returns:
            P x K x M; minus infinity where there is no candidate.
        """
        before = torch.cat([torch.full_like(lists[:, :1], NOTHING), lists[:, :-1]], dim=1)
        picked = states.candidates.gather(1, before.clamp(min=0)[..., None].expand(-1, -1, states.candidates.shape[2]))
        inputs = states.questions[:, None] + self.chosen(picked) * (before >= 0)[..., None]
        hidden = self.decoder(inputs, states.candidates, states.there)
        with torch.autocast(hidden.device.type, enabled=False):  # in bfloat16, lists differ by more than they should
            hidden, heads = hidden.float(), states.candidates.float()
            if self.settings.normalize:
                hidden, heads = functional.normalize(hidden, dim=-1), functional.normalize(heads, dim=-1)
            scores: Tensor = hidden @ heads.transpose(1, 2) / self.settings.temperature
        return scores.masked_fill(~states.there[:, None], -torch.inf)

    def log_probabilities(self, states: States, lists: Tensor, *, repeat: bool = False) -> Tensor:
        """Of each list, the logarithm of the probability that it is written.

        Args:
            states: Of P pools.
            lists: P x K, see `scores`.
            repeat: Whether a passage may come more than once, so that those chosen before take part.

        Returns:
            P values.
        """
        scores = self.scores(states, lists)
        if not repeat:
            scores = scores.masked_fill(_chosen_before(lists, scores.shape[2]), -torch.inf)
        logs = scores.log_softmax(dim=-1).gather(2, lists.clamp(min=0)[..., None]).squeeze(2)
        total: Tensor = logs.masked_fill(lists < 0, 0.0).sum(dim=1)
        return total

    @torch.no_grad()
    def write(
        self, states: States, k: int, *, repeat: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Lists of k passages, one after the other: each time the likeliest, the first of equals (eq. 6).

        Where passages may not repeat, what comes behind the `list_length` places that a ranker is
        trained for is ordered by what it says of the next place, and a list ends with its pool.

        Args:
            states: Of P pools.
            k: Passages of a list.
            repeat: Whether a passage may come more than once.
            generator: If given, passages are drawn by their probabilities instead.

        Returns:
            P x k at most; `NOTHING` where a pool has ended.
        """
        k = k if repeat else min(k, states.candidates.shape[1])
        written = k if repeat else min(k, self.settings.list_length)
        lists = torch.full((len(states.questions), k), NOTHING, device=states.questions.device)
        for place in range(k):
            scores = self.scores(states, lists[:, : place + 1])[:, -1]
            if not repeat:
                scores = scores.masked_fill(_taken(lists[:, :place], scores.shape[1]), -torch.inf)
            if place == written:
                rest = scores.argsort(dim=1, descending=True, stable=True)[:, : k - written]
                lists[:, written:] = rest.masked_fill(scores.gather(1, rest).isneginf(), NOTHING)
                break
            ended = scores.isneginf().all(dim=1, keepdim=True)
            scores = scores.masked_fill(ended, 0.0)
            if generator is None:
                chosen = scores.argmax(dim=1, keepdim=True)
            else:
                chosen = torch.multinomial(scores.softmax(dim=1), 1, generator=generator)
            lists[:, place : place + 1] = chosen.masked_fill(ended, NOTHING)
        return lists

    def forward(self, ids: Tensor, mask: Tensor, pooled: Tensor, sizes: Tensor, lists: Tensor) -> Tensor:
        """`log_probabilities`, P x N, of lists, P x N x K, of pools of these sizes that are given as for `encode`."""
        states = self.gather(self.encode(ids, mask, pooled), sizes.tolist())
        return torch.stack([self.log_probabilities(states, one) for one in lists.unbind(dim=1)], dim=1)


def _mean(hidden: Tensor, chosen: Tensor) -> Tensor:
    """The mean over the chosen positions; zero where there are none."""
    weights = chosen.to(hidden.dtype)
    summed: Tensor = torch.einsum("st,std->sd", weights, hidden)
    return summed / weights.sum(dim=1, keepdim=True).clamp(min=1)


def _taken(lists: Tensor, count: int) -> Tensor:
    """P x count: which passages a list holds."""
    held = functional.one_hot(lists.clamp(min=0), count).bool() & (lists >= 0)[..., None]
    return held.any(dim=1)


def _chosen_before(lists: Tensor, count: int) -> Tensor:
    """P x K x count: which passages stand before each place."""
    held = functional.one_hot(lists.clamp(min=0), count) * (lists >= 0)[..., None]
    return (held.cumsum(dim=1) - held) > 0
