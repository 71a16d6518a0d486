"""The network of the list ranker (RichRAG, section 3.4).

    each candidate ─► encoder ─► pooled state e ─┐
    the question   ─► encoder ─► pooled state q ─┴► decoder ─► h at each place ─► softmax(h · e / temperature)

All candidates are encoded at the same time, each with the question but without the others. How they relate to
one another is up to the decoder, which sees one state for each of them. The output head has no
weights of its own: it compares the decoder's state with those of the candidates (eq. 7).

The paper's decoder begins with a start token and goes on with docid tokens, whose embeddings are
learned for each place in the pool. This one begins with the question's state, and goes on
with that state and the state of the last chosen passage. So the order and number of candidates do not
matter, and an untrained sentence encoder ranks by cosine.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from typedrag.retrieval.rerank.list_ranker.texts import ListRankerSettings

AT_ONCE = {"cpu": 8, "cuda": 256}
"""Sequences encoded at the same time: few on a CPU, which they fill already."""
NOTHING = -1
"""The filler of a list that is shorter than others beside it."""


class States(NamedTuple):
    """The encoder's states of P pools of at most M candidates.

    Attributes:
        questions: P x dimensions.
        candidates: P x M x dimensions.
        there: P x M; false at the places that a smaller pool leaves empty.
    """

    questions: Tensor
    candidates: Tensor
    there: Tensor


class SmallDecoder(nn.Module):
    """A decoder for encoders that come without one; untrained, it changes nothing.

    Args:
        size: Dimensions of a state.
        layers: The number of layers.
        heads: The number of attention heads.
        dropout: The share of activations dropped in training.
    """

    def __init__(self, size: int, layers: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(
            size, heads, 4 * size, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, layers) if layers else None
        for block in self.layers.layers if self.layers else ():
            for last in (block.self_attn.out_proj, block.multihead_attn.out_proj, block.linear2):
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
    """The decoder of a transformers encoder-decoder, without its vocabulary.

    Args:
        decoder: A decoder such as T5's.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        decoder.set_input_embeddings(None)  # type: ignore[operator]
        self.decoder = decoder

    def forward(self, inputs: Tensor, states: Tensor, there: Tensor) -> Tensor:
        """The decoder's states; see `SmallDecoder.forward`."""
        decoded: Tensor = self.decoder(
            inputs_embeds=inputs,
            encoder_hidden_states=states,
            encoder_attention_mask=there.long(),
            use_cache=False,
        ).last_hidden_state
        return decoded


class ListRankerModel(nn.Module):
    """An encoder and a decoder, which score and write lists of passages.

    Args:
        encoder: One of transformers, with a last hidden state.
        decoder: `SmallDecoder` or `PretrainedDecoder`.
        size: Dimensions of a state.
        settings: The ranker's settings.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, size: int, settings: ListRankerSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.settings = settings
        self.chosen = nn.Linear(size, size, bias=False)
        """The effect of a chosen passage on the next choice; none before training."""
        nn.init.zeros_(self.chosen.weight)
        self.context = nn.Linear(size, size, bias=False) if settings.pooling == "passage" else None
        """The share of the tokens after a passage in its state; none before training."""
        if self.context is not None:
            nn.init.zeros_(self.context.weight)

    def encode(self, ids: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """One state for each sequence; those of like length are encoded together, since padding costs time too.

        Args:
            ids: Sequences x tokens.
            mask: True at tokens that are not padding.
            pooled: Sequences x 2: the first position of the pooled tokens, and the position after the last.
        """
        lengths = mask.sum(dim=1)
        by_length = lengths.argsort(stable=True)
        states = []
        for part in by_length.split(AT_ONCE["cuda" if ids.is_cuda else "cpu"]):
            width = int(lengths[part[-1]])
            states.append(self._encode(ids[part, :width], mask[part, :width], pooled[part]))
        return torch.cat(states)[by_length.argsort()]

    def _encode(self, ids: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """The mean over the pooled tokens, plus the learned share of the tokens after them."""
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
        """The states of pools that were encoded in a row, each with its question first.

        Args:
            encoded: Sequences x dimensions.
            sizes: The number of candidates of each pool.
        """
        parts = encoded.split([1 + size for size in sizes])
        candidates = nn.utils.rnn.pad_sequence([part[1:] for part in parts], batch_first=True)
        counts = torch.tensor(sizes, device=encoded.device)
        there = torch.arange(candidates.shape[1], device=encoded.device) < counts[:, None]
        return States(torch.stack([part[0] for part in parts]), candidates, there)

    def scores(self, states: States, lists: Tensor) -> Tensor:
        """The logits of the output head at each place of lists, all passages allowed (eq. 7).

        Args:
            states: The states of P pools.
            lists: P x K: the passage chosen at each place; `NOTHING` after a list's end. The choice
                at a place only matters to later places.

        Returns:
            P x K x M; minus infinity where there is no candidate.
        """
        before = torch.cat([torch.full_like(lists[:, :1], NOTHING), lists[:, :-1]], dim=1)
        picked = states.candidates.gather(1, before.clamp(min=0)[..., None].expand(-1, -1, states.candidates.shape[2]))
        inputs = states.questions[:, None] + self.chosen(picked) * (before >= 0)[..., None]
        hidden = self.decoder(inputs, states.candidates, states.there)
        with torch.autocast(hidden.device.type, enabled=False):  # in bfloat16 lists differ by too much
            hidden, heads = hidden.float(), states.candidates.float()
            if self.settings.normalize:
                hidden, heads = functional.normalize(hidden, dim=-1), functional.normalize(heads, dim=-1)
            scores: Tensor = hidden @ heads.transpose(1, 2) / self.settings.temperature
        return scores.masked_fill(~states.there[:, None], -torch.inf)

    def log_probabilities(self, states: States, lists: Tensor, *, repeat: bool = False) -> Tensor:
        """The log probability of each list.

        Args:
            states: The states of P pools.
            lists: P x K, see `scores`.
            repeat: If True, a passage may occur more than once: those chosen before stay in the softmax.

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
        """Write lists of k passages, one by one: each time the likeliest, the first of equals (eq. 6).

        If passages may not repeat, a ranker chooses only the `list_length` places it is trained for; the scores of the
        next place order the passages behind them. A list ends with its pool.

        Args:
            states: The states of P pools.
            k: The number of passages of a list.
            repeat: If True, a passage may occur more than once.
            generator: If given, passages are drawn by their probabilities.

        Returns:
            P x k at most; `NOTHING` after a pool's end.
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
        """The `log_probabilities`, P x N, of lists, P x N x K, for pools of these sizes encoded as in `encode`."""
        states = self.gather(self.encode(ids, mask, pooled), sizes.tolist())
        return torch.stack([self.log_probabilities(states, one) for one in lists.unbind(dim=1)], dim=1)


def _mean(hidden: Tensor, chosen: Tensor) -> Tensor:
    """The mean over the chosen positions; zero where there are none."""
    weights = chosen.to(hidden.dtype)
    summed: Tensor = torch.einsum("st,std->sd", weights, hidden)
    return summed / weights.sum(dim=1, keepdim=True).clamp(min=1)


def _taken(lists: Tensor, count: int) -> Tensor:
    """A mask, P x count, of the passages in each list."""
    held = functional.one_hot(lists.clamp(min=0), count).bool() & (lists >= 0)[..., None]
    return held.any(dim=1)


def _chosen_before(lists: Tensor, count: int) -> Tensor:
    """A mask, P x K x count, of the passages before each place."""
    held = functional.one_hot(lists.clamp(min=0), count) * (lists >= 0)[..., None]
    return (held.cumsum(dim=1) - held) > 0
