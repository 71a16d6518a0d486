"""The network of RichRAG's generative list-wise ranker (section 3.4), and the token sequences that it reads (eq. 5).

    docid     [D] question [Q] sub-aspect [E] … [S] passage
    passage   passage question [Q] sub-aspect [E] …

    each candidate ─► encoder ─► pooled state e ─┐
    the question   ─► encoder ─► pooled state q ─┴► decoder ─► h at each place ─► softmax(h · e / temperature)

All candidates are encoded at the same time, each with the question but without the others. How they relate to
one another is up to the decoder, which sees one state for each of them. The output head has no
weights of its own: it compares the decoder's state with those of the candidates (eq. 7).

The paper has a docid token for each place in the pool, and its authors' decoder begins with a token and continues with
the states of the chosen passages, which it then attends to no more: the setting `docids`. Without it, all candidates
have the same docid token, and the decoder begins with the question's state and continues with that state and a learned
part of the last chosen passage. So the order and number of candidates do not matter, and an untrained sentence encoder
ranks by cosine.

Needs torch and transformers: import this only where it is used, so that other code does not wait for these.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.extras import require

require("torch", "transformers")
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from typedrag.retrieval.list_ranker_settings import SEPARATORS, ListRankerSettings  # noqa: E402

AT_ONCE = {"cpu": 8, "cuda": 256}  # sequences encoded at the same time: few on a CPU, which they fill already
NOTHING = -1  # the filler of a list that is shorter than others beside it


class Candidates(NamedTuple):
    """The passages to be ranked for a question."""

    question: str
    passages: Sequence[str]  # their texts, with their titles
    aspects: Sequence[Sequence[str]] = ()  # the sub-aspects that each passage was found for; empty if none has any


class Sequences(NamedTuple):
    """Sequences of tokens, and the span of each that is pooled to one state: its first position, and that after it."""

    ids: list[list[int]]
    pooled: list[tuple[int, int]]


class Reader:
    """Makes the sequences of a question and its candidates, for one thread; the tokenizer knows `SEPARATORS`."""

    def __init__(self, tokenizer: Any, settings: ListRankerSettings) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        if settings.docids:
            return
        self._docid, self._question, self._aspect, self._aspects = tokenizer.convert_tokens_to_ids(list(SEPARATORS))
        self._begin = [] if tokenizer.cls_token_id is None else [tokenizer.cls_token_id]
        ends = (tokenizer.sep_token_id, tokenizer.eos_token_id)
        self._end = [next(i for i in ends if i is not None)] if any(i is not None for i in ends) else []

    def read(self, candidates: Candidates) -> Sequences:
        """The sequences of the question with all sub-aspects, and then of each candidate with its own."""
        if self.settings.docids:
            return self._read_as_published(candidates)
        own = candidates.aspects or [()] * len(candidates.passages)
        every = sorted({aspect for aspects in own for aspect in aspects})  # independent of the order of passages
        [question, *aspects] = self._tokens([candidates.question, *every])
        known = {name: [*tokens, self._aspect] for name, tokens in zip(every, aspects, strict=True)}
        sequences = Sequences([], [])
        self._add(sequences, question, [token for name in every for token in known[name]])
        for passage, names in zip(self._tokens(candidates.passages), own, strict=True):
            head = [*question, self._question, *(token for name in names for token in known[name])]
            self._add(sequences, passage, head)
        return sequences

    def _read_as_published(self, candidates: Candidates) -> Sequences:
        """The sequences of the authors' code, `[D0] question [Q] sub-aspect [SEP] … [SUBQ] passage`. The first one is
        the question's, whose state their decoder does not read."""
        if (number := len(candidates.passages)) > self.settings.docids:
            raise InputError(
                f"a pool has {number} passages, and the ranker {self.settings.docids} docid tokens", "Cut it"
            )
        own = candidates.aspects or [()] * number
        texts = [candidates.question] + [
            f"[D{place}] {candidates.question} [Q] {' [SEP] '.join(names)} [SUBQ] {passage}"
            for place, (passage, names) in enumerate(zip(candidates.passages, own, strict=True))
        ]
        one_line = [" ".join(text.split()) for text in texts]
        ids = self.tokenizer(one_line, truncation=True, max_length=self.settings.max_tokens)["input_ids"]
        return Sequences(ids, [(0, 1)] * len(ids))

    def pad(self, ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, ids))
        padding = self.tokenizer.pad_token_id or 0
        padded = torch.tensor([[*row, *[padding] * (width - len(row))] for row in ids])
        lengths = torch.tensor([len(row) for row in ids])
        return padded, (torch.arange(width) < lengths[:, None]).long()

    def _add(self, sequences: Sequences, text: list[int], about: list[int]) -> None:
        """Add a text with its context: a passage with its question, or a question with its sub-aspects."""
        about = about[: self.settings.max_tokens // 2]
        room = max(1, self.settings.max_tokens - len(about) - 4)  # begin, docid, end of sub-aspects, end
        if self.settings.pooling == "docid":
            start = len(self._begin)
            ids = [*self._begin, self._docid, *about, self._aspects, *text[:room], *self._end]
            sequences.pooled.append((start, start + 1))
        else:
            ids = [*self._begin, *text[:room], *self._end] or [self._aspects]
            sequences.pooled.append((0, len(ids)))
            ids += about
        sequences.ids.append(ids)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        # separators written in a passage are text
        ids: list[list[int]] = self.tokenizer(
            list(texts),
            add_special_tokens=False,
            truncation=True,
            max_length=self.settings.max_tokens,
            split_special_tokens=True,
        )["input_ids"]
        return ids


class States(NamedTuple):
    """The encoder's states of P pools of at most M candidates."""

    questions: Tensor  # P x dimensions
    candidates: Tensor  # P x M x dimensions
    there: Tensor  # P x M; false at the places that a smaller pool leaves empty


class SmallDecoder(nn.Module):
    """A decoder for encoders that come without one; untrained, it changes nothing."""

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
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        decoder.set_input_embeddings(None)  # type: ignore[operator]
        self.decoder = decoder

    def forward(self, inputs: Tensor, states: Tensor, there: Tensor) -> Tensor:
        mask = there.long()
        if there.dim() == 3:  # other states at each place
            mask = torch.zeros(there.shape, device=there.device, dtype=inputs.dtype)
            mask = mask.masked_fill(~there, torch.finfo(mask.dtype).min)[:, None]
        decoded: Tensor = self.decoder(
            inputs_embeds=inputs, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False
        ).last_hidden_state
        return decoded


class ListRankerModel(nn.Module):
    """An encoder of transformers and a decoder, of states of `size` dimensions: they score and write lists."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, size: int, settings: ListRankerSettings) -> None:
        super().__init__()
        self.encoder, self.decoder, self.settings = encoder, decoder, settings
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
        """The states of pools of these sizes that were encoded in a row, each with its question first."""
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
        there = states.there
        if self.settings.docids:
            encoder: Any = self.encoder
            start = encoder.get_input_embeddings().weight[encoder.config.eos_token_id]
            inputs = torch.where((before >= 0)[..., None], picked, start)
            there = there[:, None] & ~_chosen_before(lists, there.shape[1])
        else:
            inputs = states.questions[:, None] + self.chosen(picked) * (before >= 0)[..., None]
        hidden = self.decoder(inputs, states.candidates, there)
        with torch.autocast(hidden.device.type, enabled=False):  # in bfloat16 lists differ by too much
            hidden, heads = hidden.float(), states.candidates.float()
            if self.settings.normalize:
                hidden, heads = functional.normalize(hidden, dim=-1), functional.normalize(heads, dim=-1)
            scores: Tensor = hidden @ heads.transpose(1, 2) / self.settings.temperature
        return scores.masked_fill(~states.there[:, None], -torch.inf)

    def log_probabilities(self, states: States, lists: Tensor, *, repeat: bool = False) -> Tensor:
        """The log probability of each of P lists, P x K; if they repeat, passages stay in the softmax once chosen."""
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
        next place order the passages behind them. A list ends with its pool, and has `NOTHING` after that.
        With a generator passages are drawn by their probabilities.
        """
        k = k if repeat else min(k, states.candidates.shape[1])
        written = k if repeat else min(k, self.settings.list_length)
        lists = torch.full((len(states.questions), k), NOTHING, device=states.questions.device)
        for place in range(k):
            so_far, left = lists[:, : place + 1], states
            chosen = _chosen_before(so_far, states.there.shape[1])[:, -1] & (not repeat)
            if self.settings.docids:  # in the authors' code no place sees them any more, in training only later ones
                left = states._replace(there=states.there & ~chosen)
            scores = self.scores(left, so_far)[:, -1].masked_fill(chosen, -torch.inf)
            if place == written:
                rest = scores.argsort(dim=1, descending=True, stable=True)[:, : k - written]
                lists[:, written:] = rest.masked_fill(scores.gather(1, rest).isneginf(), NOTHING)
                break
            ended = scores.isneginf().all(dim=1, keepdim=True)
            scores = scores.masked_fill(ended, 0.0)
            if generator is None:
                choice = scores.argmax(dim=1, keepdim=True)
            else:
                choice = torch.multinomial(scores.softmax(dim=1), 1, generator=generator)
            lists[:, place : place + 1] = choice.masked_fill(ended, NOTHING)
        return lists

    def forward(self, ids: Tensor, mask: Tensor, pooled: Tensor, sizes: Tensor, lists: Tensor) -> Tensor:
        """The `log_probabilities`, P x N, of lists, P x N x K, for pools of these sizes encoded as in `encode`."""
        states = self.gather(self.encode(ids, mask, pooled), sizes.tolist())
        return torch.stack([self.log_probabilities(states, one) for one in lists.unbind(dim=1)], dim=1)


def _chosen_before(lists: Tensor, size: int) -> Tensor:
    """P x K x `size`: true for the passages that each list chose before each place."""
    held = functional.one_hot(lists.clamp(min=0), size) * (lists >= 0)[..., None]
    return (held.cumsum(dim=1) - held) > 0


def _mean(hidden: Tensor, chosen: Tensor) -> Tensor:
    """The mean over the chosen positions; zero where there are none."""
    weights = chosen.to(hidden.dtype)
    summed: Tensor = torch.einsum("st,std->sd", weights, hidden)
    return summed / weights.sum(dim=1, keepdim=True).clamp(min=1)
