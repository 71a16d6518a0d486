"""A list ranker: made from an encoder, saved as a folder without pickles, loaded, and used as a `Reranker`."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import nn

from typedrag.core.errors import InputError, RetrievalError, first_line
from typedrag.core.records import Passage
from typedrag.files.text_files import new_folder, parse_json, write_json
from typedrag.retrieval.list_network import (
    Candidates,
    ListRankerModel,
    PretrainedDecoder,
    Reader,
    SmallDecoder,
    States,
)
from typedrag.retrieval.list_ranker_settings import ListRankerSettings
from typedrag.retrieval.local_models import accelerator, locate_model
from typedrag.retrieval.rerankers import ModelReranker

logger = logging.getLogger(__name__)

SETTINGS = "ranker.json"
WEIGHTS = "model.safetensors"
SCRATCH = "scratch"  # the start for tests: an untrained encoder of a few thousand weights
_SCRATCH_WORDS = 4000


@dataclass
class ListRanker:
    """A list ranker, ready to be trained or used."""

    model: ListRankerModel
    tokenizer: Any
    config: Any  # transformers' configuration of the encoder, and of the decoder if the encoder came with one
    trained: Mapping[str, Any] = field(default_factory=dict)  # facts about its training, as JSON values

    @property
    def settings(self) -> ListRankerSettings:
        return self.model.settings

    @torch.no_grad()
    def encode(self, candidates: Candidates) -> States:
        self.model.eval()
        if most := self.settings.docids:
            candidates = Candidates(candidates.question, candidates.passages[:most], candidates.aspects[:most])
        reader = Reader(self.tokenizer, self.settings)
        sequences = reader.read(candidates)
        device = self.model.chosen.weight.device
        ids, mask = reader.pad(sequences.ids)
        encoded = self.model.encode(ids.to(device), mask.to(device), torch.tensor(sequences.pooled, device=device))
        return self.model.gather(encoded, [len(candidates.passages)])

    def write(self, candidates: Candidates, k: int, *, repeat: bool = False) -> list[int]:
        """The positions of the candidates in the ranker's list, best first."""
        written: list[int] = self.model.write(self.encode(candidates), k, repeat=repeat)[0].tolist()
        return written

    def save(self, folder: Path) -> None:
        """Write the folder whole or not at all, in place of a ranker that was there."""
        from safetensors.torch import save_file

        if folder.exists() and any(folder.iterdir()) and not is_list_ranker(folder):
            raise InputError(f"{folder} holds something else than a list ranker", "Name another folder")
        with new_folder(folder) as part:
            self.tokenizer.save_pretrained(part)
            self.config.save_pretrained(part)
            save_file({n: t.contiguous() for n, t in self.model.state_dict().items()}, part / WEIGHTS)
            write_json(part / SETTINGS, {"settings": self.settings.model_dump(), "trained": dict(self.trained)})


def is_list_ranker(folder: Path) -> bool:
    return (folder / SETTINGS).is_file()


def load_list_ranker(folder: Path) -> ListRanker:
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoTokenizer

    if not is_list_ranker(folder):
        raise InputError(f"{folder} holds no list ranker", "Make one: typedrag research ranker train")
    try:
        values = parse_json((folder / SETTINGS).read_text("utf-8"))
        settings = ListRankerSettings.model_validate(values["settings"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder / SETTINGS} cannot be used: {reason}", "Train it again") from None
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model = _network(_untrained(config), config, settings)
    model.load_state_dict(load_file(folder / WEIGHTS))
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return ListRanker(model.eval(), tokenizer, config, values.get("trained", {}))


def start_list_ranker(
    start: str, settings: ListRankerSettings | None = None, *, texts: Iterable[str] = (), seed: int = 0
) -> ListRanker:
    """A list ranker ready to be trained.

    Args:
        start: An encoder, such as all-minilm-l6-v2, or an encoder-decoder, such as google/flan-t5-base:
            a model that `typedrag models` knows, a folder, or a name on the hub. Or a list ranker's
            folder, which keeps its own settings. Or `scratch`.
        settings: The settings of a start that has none.
        texts: The texts from which `scratch` learns its words.
        seed: The seed of new weights.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    torch.manual_seed(seed)
    if is_list_ranker(Path(start)):
        if settings is not None:
            raise InputError(f"{start} is a list ranker, which has its own settings", "Give none")
        return load_list_ranker(Path(start))
    if start == SCRATCH:
        config, tokenizer = _scratch(texts)
        base = _untrained(config)
    else:
        name = locate_model(start)
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer.add_tokens((settings or ListRankerSettings()).special_tokens, special_tokens=True)
        # in single precision, like the new parts
        base = AutoModel.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
        base.resize_token_embeddings(max(len(tokenizer), config.vocab_size))
        config = base.config
    settings = settings or ListRankerSettings()
    if settings.docids and not (config.is_encoder_decoder and settings.pooling != "passage"):
        raise InputError("docids are for an encoder-decoder that pools docid tokens", "Start google/flan-t5-base")
    positions = getattr(config, "max_position_embeddings", None)  # none in T5, whose positions have no end
    longest = positions and positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0)
    if longest is not None and settings.max_tokens > longest:
        raise InputError(
            f"max_tokens is {settings.max_tokens}; the start reads {longest} at most", "Cut passages to that"
        )
    poolings = [settings.pooling]
    if settings.pooling == "auto":
        poolings = ["docid"] if config.is_encoder_decoder else ["passage", "docid"]
    for pooling in poolings:
        settings = settings.model_copy(update={"pooling": pooling})
        ranker = ListRanker(_network(base, config, settings).eval(), tokenizer, config)
        if not (problem := _misreading(ranker)):
            return ranker
        logger.warning("start '%s' cannot read pools with pooling=%s: %s", start, pooling, problem)
    other = "Give --ranker pooling=docid, or name" if settings.pooling == "passage" else "Name"
    raise InputError(
        f"start '{start}' cannot read pools with pooling={settings.pooling}: {problem}", f"{other} another --start"
    )


def import_list_ranker(checkpoint: Path, base: str = "google/flan-t5-base") -> ListRanker:
    """The list ranker of a checkpoint of RichRAG's authors.

    Args:
        checkpoint: Their `model.safetensors`: the weights of a T5 whose tokens are followed by a docid token for each
            place, and whose `lm_head`, which nothing reads, has as many rows.
        base: The T5 that it was trained from, for its configuration and tokenizer: see `start_list_ranker`.
    """
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoTokenizer

    try:
        weights = {name.removeprefix("model."): w.float() for name, w in load_file(checkpoint).items()}
    except (OSError, SafetensorError) as error:
        raise InputError(f"{checkpoint} cannot be read: {first_line(error)}", "Name a model.safetensors") from None
    embeddings = next((w for name, w in weights.items() if name == "shared.weight" or "embed_tokens" in name), None)
    if embeddings is None or "lm_head.weight" not in weights:
        lack = "it lacks the embeddings of tokens, or lm_head"
        raise InputError(f"{checkpoint} is no checkpoint of RichRAG's ranker: {lack}", "Name its model.safetensors")
    name = locate_model(base)
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    # their scores are divided by the root of the dimensions, and then by 0.1
    settings = ListRankerSettings(
        pooling="docid", max_tokens=512, normalize=False, temperature=0.1 * config.d_model**0.5,
        docids=len(weights["lm_head.weight"]),
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    tokenizer.add_tokens(settings.special_tokens, special_tokens=True)
    config.vocab_size = len(embeddings)
    model = _untrained(config)
    tied = dict.fromkeys(("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), embeddings)
    try:
        model.load_state_dict(
            {n: w for n, w in {**weights, **tied}.items() if n.startswith(("shared", "encoder", "decoder"))}
        )
    except RuntimeError as error:
        problem = " ".join(str(error).split())
        raise InputError(f"the weights of {checkpoint} do not fit {base}: {problem:.300}", "Name its --base") from None
    return ListRanker(_network(model, config, settings).eval(), tokenizer, config, {"imported": checkpoint.name})


def _misreading(ranker: ListRanker) -> str:
    """The reason why the encoder cannot read a toy pool with these settings; empty if it can."""
    reader = Reader(ranker.tokenizer, ranker.settings)
    states = []
    for question in ("Why is bread dense?", "What do cats do all day long, and where?"):
        read = reader.read(Candidates(question, ["Old yeast makes little gas.", "Cats sleep."]))
        try:
            with torch.inference_mode():
                states.append(ranker.model.encode(*reader.pad(read.ids), torch.tensor(read.pooled)))
        except Exception as error:  # encoders fail in many ways
            return first_line(error)
    if ranker.settings.pooling == "passage" and not torch.allclose(states[0][1:], states[1][1:], 1e-4, 1e-4):
        return "its passages see the question"
    return ""


def _untrained(config: Any) -> Any:
    from transformers import AutoModel

    return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)


def _network(base: Any, config: Any, settings: ListRankerSettings) -> ListRankerModel:
    size = config.hidden_size
    decoder: nn.Module
    if config.is_encoder_decoder:
        encoder, decoder = base.get_encoder(), PretrainedDecoder(base.get_decoder())
    else:
        if getattr(base, "pooler", None) is not None:
            base.pooler = None  # states are pooled in another way
        encoder, decoder = base, SmallDecoder(size, settings.decoder_layers, config.num_attention_heads)
    return ListRankerModel(encoder, decoder, size, settings)


def _scratch(texts: Iterable[str]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, PreTrainedTokenizerFast

    normalizer, splitter = BertNormalizer(), BertPreTokenizer()
    counts = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    if not counts:
        raise InputError("there are no texts to learn words from", "Give training data, or another --start")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:_SCRATCH_WORDS]
    vocabulary = {word: number for number, word in enumerate([*special.values(), *frequent])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizer, splitter
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)
    tokenizer.add_tokens(ListRankerSettings().special_tokens, special_tokens=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
    )
    return config, tokenizer


class ListReranker(ModelReranker):
    """Ranks passages as a list, each in view of those before it (RichRAG, section 3.4).

    Scores are 1 / place: only the places of a list mean something. Its name is a folder that
    `typedrag research ranker train` wrote.
    """

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
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
        if not passages or k < 1:
            return []
        texts = [p.titled for p in passages]
        candidates = Candidates(query, texts, [tuple(aspects.get(p.id, ())) for p in passages])
        with self._in_turn:
            order = self._model.write(candidates, k, repeat=repeat)
        return [replace(passages[n], score=1 / place) for place, n in enumerate(order, 1)]

    def _load(self) -> Any:
        try:
            ranker = load_list_ranker(Path(self.name))
        except InputError as error:  # a folder that a program names, not a user's argument
            raise RetrievalError(error.problem, error.hint) from None
        ranker.model.to(accelerator())
        return ranker
