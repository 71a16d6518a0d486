"""Train a list ranker: supervised by silver lists, then by preferences (RichRAG, section 3.4).

transformers' Trainer does the work, so the same training runs on a CPU or on a GPU, in one process.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.nn import functional
from transformers.trainer_utils import set_seed

from typedrag.core.errors import InputError
from typedrag.datasets.richrag import Pool
from typedrag.metrics.ranking import greedy_ranking
from typedrag.optimizers.list_ranker.config import TrainingSettings
from typedrag.optimizers.list_ranker.measures import pool_measures, ranker_candidates, silver_list, utility_table
from typedrag.optimizers.list_ranker.preferences import Preference
from typedrag.optimizers.trainer import OnStep, QuietTrainer, last_checkpoint, train, training_arguments
from typedrag.retrieval.list_network import NOTHING, ListRankerModel, Reader, SmallDecoder
from typedrag.retrieval.list_ranker import ListRanker


class TrainingOutcome(BaseModel):
    """The losses and the validation of a training."""

    losses: list[float]
    """The losses of its steps, earlier sessions included."""
    validated: dict[int, float]
    """The validation's measure by step, 0 being before the training; empty without validation pools."""
    best_step: int | None
    """The step whose weights were kept, 0 if the training improved nothing; None without validation, where the last
    weights are kept."""
    stopped: bool
    """True if it ran out of time."""


class TrainingExample(NamedTuple):
    """A pool with the lists to learn from."""

    pool: Pool
    chosen: tuple[int, ...]
    lists: tuple[tuple[int, ...], ...]
    reference: tuple[float, ...] = ()


class SilverDataset(torch.utils.data.Dataset[TrainingExample]):
    """Silver lists of pools, with candidates drawn again each time a list is read."""

    learning_rate = 5e-5
    candidates = 32

    def __init__(self, pools: Sequence[Pool], candidates: int, length: int, *, full: bool = False) -> None:
        self._rank = greedy_ranking if full else silver_list
        tables = ((pool, utility_table(pool)) for pool in pools)
        self._pools = [(pool, table) for pool, table in tables if table.any()]
        self._candidates, self._length = candidates, length

    def __len__(self) -> int:
        return len(self._pools)

    def __getitem__(self, number: int) -> TrainingExample:
        pool, table = self._pools[number]
        chosen = list(range(len(table)))
        if len(table) > self._candidates:
            covering = [n for n in chosen if table[n].any()]
            good = random.sample(covering, min(len(covering), max(1, self._candidates // 2)))
            others = random.sample([n for n in chosen if n not in good], self._candidates - len(good))
            chosen = sorted([*good, *others])
        return TrainingExample(pool, tuple(chosen), (tuple(self._rank(table[chosen], self._length)),))


class PreferenceDataset(torch.utils.data.Dataset[TrainingExample]):
    """Pairs of lists, with their log-probabilities by the ranker before the training."""

    learning_rate = 3e-6

    def __init__(
        self,
        preferences: Sequence[Preference],
        ranker: ListRanker,
        candidates: int | None,
        seed: int,
        bf16: bool = False,
    ) -> None:
        rng, collate = random.Random(seed), Collator(ranker)
        device = ranker.model.chosen.weight.device
        self._examples = []
        for pool, winner, loser in preferences:
            listed = sorted({*winner.ranking, *loser.ranking})
            others = [n for n in range(len(pool.passages)) if n not in listed]
            room = len(others) if candidates is None else min(len(others), max(0, candidates - len(listed)))
            chosen = sorted([*listed, *rng.sample(others, room)])
            lists = tuple(tuple(map(chosen.index, one.ranking)) for one in (winner, loser))
            example = TrainingExample(pool, tuple(chosen), lists)
            tensors = {name: tensor.to(device) for name, tensor in collate([example]).items()}
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                [reference] = ranker.model.eval()(**tensors).tolist()
            self._examples.append(example._replace(reference=tuple(reference)))

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, number: int) -> TrainingExample:
        return self._examples[number]


class Collator:
    """Makes a batch of tensors from examples: the inputs of the model's `forward`, and `reference` if it is known."""

    def __init__(self, ranker: ListRanker) -> None:
        self._reader = Reader(ranker.tokenizer, ranker.settings)

    def __call__(self, examples: Sequence[TrainingExample]) -> dict[str, Tensor]:
        read = [self._reader.read(ranker_candidates(example.pool, example.chosen)) for example in examples]
        ids, mask = self._reader.pad([row for sequences in read for row in sequences.ids])
        longest = max(1, *(len(one) for example in examples for one in example.lists))
        lists = [[[*one, *[NOTHING] * (longest - len(one))] for one in example.lists] for example in examples]
        tensors = {
            "ids": ids,
            "mask": mask,
            "pooled": torch.tensor([span for sequences in read for span in sequences.pooled]),
            "sizes": torch.tensor([len(example.chosen) for example in examples]),
            "lists": torch.tensor(lists),
        }
        if all(example.reference for example in examples):
            tensors["reference"] = torch.tensor([example.reference for example in examples])
        return tensors


def train_list_ranker(
    ranker: ListRanker,
    dataset: SilverDataset | PreferenceDataset,
    folder: Path,
    settings: TrainingSettings,
    *,
    validation: Sequence[Pool] = (),
    resume: bool = False,
    on_step: OnStep = lambda loss: None,
) -> TrainingOutcome:
    if not len(dataset):
        raise InputError("there is nothing to train on", "Give more pools, or a lower threshold for pairs")
    freeze(ranker.model, settings.frozen_layers)
    start = {name: p.detach().cpu().clone() for name, p in ranker.model.named_parameters() if p.requires_grad}
    last = last_checkpoint(folder) if resume else None
    checkpoint_steps = max(1, -(-len(dataset) // settings.batch) // settings.saves)
    arguments = training_arguments(
        folder,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate or dataset.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        per_device_train_batch_size=settings.at_once,
        gradient_accumulation_steps=max(1, settings.batch // settings.at_once),
        save_strategy="steps",
        save_steps=checkpoint_steps,
        eval_strategy="steps" if validation else "no",
        eval_on_start=bool(validation) and last is None,
        eval_steps=checkpoint_steps,
        save_total_limit=2,
        load_best_model_at_end=bool(validation),
        metric_for_best_model=_RankerTrainer.measure if validation else None,
        greater_is_better=True,
        seed=settings.seed,
        bf16=settings.bf16,
        use_cpu=ranker.model.chosen.weight.device.type == "cpu",
        remove_unused_columns=False,
        label_names=[],
        dataloader_pin_memory=False,
    )
    set_seed(settings.seed)
    trainer = _RankerTrainer(
        ranker, validation, settings, args=arguments, train_dataset=dataset, data_collator=Collator(ranker)
    )
    stopped = train(trainer, resume_from=last, on_step=on_step, minutes=settings.minutes)
    ranker.model.eval()
    history: list[dict[str, Any]] = trainer.state.log_history
    validated = {h["step"]: h[_RankerTrainer.measure] for h in history if _RankerTrainer.measure in h}
    best = max(validated, key=lambda step: validated[step]) if trainer.state.best_model_checkpoint else None
    if best == 0:
        ranker.model.load_state_dict(start, strict=False)
    losses = [h["loss"] for h in history if "loss" in h]
    return TrainingOutcome(losses=losses, validated=validated, best_step=best, stopped=stopped)


def freeze(model: ListRankerModel, layers: int) -> None:
    """Exclude the encoder's embeddings and its first layers from training."""
    if not layers:
        return
    blocks = next(m for m in model.encoder.modules() if isinstance(m, nn.ModuleList))
    if layers > len(blocks):
        raise InputError(f"the encoder has {len(blocks)} layers, not {layers}", "Freeze fewer")
    last = {id(parameter) for parameter in blocks[layers - 1].parameters()}
    named = list(model.encoder.named_parameters())
    behind = max(place for place, (_, parameter) in enumerate(named) if id(parameter) in last)
    for place, (name, parameter) in enumerate(named):
        if place <= behind or "embed" in name:  # BART lists its norm of the embeddings after the layers
            parameter.requires_grad_(False)


def new_parameters(model: ListRankerModel) -> list[nn.Parameter]:
    """The parameters that no pretrained model has: they begin at zero, unlike those of a pretrained decoder."""
    decoder = model.decoder.parameters() if isinstance(model.decoder, SmallDecoder) else ()
    context = model.context.parameters() if model.context else ()
    return [*model.chosen.parameters(), *context, *decoder]


class _RankerTrainer(QuietTrainer):
    """Minimizes the losses of lists, and validates by ranking."""

    measure = "eval_ranking"

    def __init__(self, ranker: ListRanker, pools: Sequence[Pool], settings: TrainingSettings, **options: Any) -> None:
        super().__init__(model=ranker.model, eval_dataset=list(pools) or None, **options)
        self._ranker = ranker
        # by nDCG, or by NCOM where a pool has sub-answers or no label above 0
        by_labels = [not pool.sub_answers and any(p.label for p in pool.passages) for pool in pools]
        tables = [None if labels else utility_table(pool) for pool, labels in zip(pools, by_labels, strict=True)]
        self._pools = list(zip(pools, tables, strict=True))
        self._settings = settings
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args)
        if rate := self._settings.new_learning_rate:
            new = {id(parameter) for parameter in new_parameters(self._ranker.model)}
            for group in list(optimizer.param_groups):
                apart = [p for p in group["params"] if id(p) in new]
                group["params"] = [p for p in group["params"] if id(p) not in new]
                optimizer.add_param_group({**group, "params": apart, "lr": rate})
        return optimizer

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        reference = inputs.pop("reference", None)
        if reference is not None:
            model.eval()  # the reference was computed without dropout
        logs = model(**inputs)
        if reference is None:
            loss = sft_loss(logs[:, 0])
        else:
            loss = dpo_loss(logs[:, 0], logs[:, 1], reference[:, 0], reference[:, 1], self._settings.beta)
        return (loss, {"logs": logs}) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        values = []
        for pool, table in self._pools:
            ranking = self._ranker.write(ranker_candidates(pool), k=10)
            values.append(pool_measures(pool, ranking, table).get("ndcg" if table is None else "ncom", 0.0))
        measured = {self.measure: fmean(values)}
        self.log(measured)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, measured)
        return measured


def sft_loss(log_probabilities: Tensor) -> Tensor:
    """The loss of supervised fine-tuning: the mean negative log-probability of silver lists (eq. 10).

    Example:
        Lists with the probabilities 1/2 and 1/8 cost log 2 and 3 log 2:

        >>> from torch import tensor
        >>> round(sft_loss(tensor([0.5, 0.125]).log()).item(), 4)  # 2 log 2
        1.3863
    """
    return -log_probabilities.mean()


def dpo_loss(
    winners: Tensor, losers: Tensor, reference_winners: Tensor, reference_losers: Tensor, beta: float
) -> Tensor:
    """The loss of direct preference optimization: the mean over pairs of lists (eq. 12).

    Example:
        The loss of an unchanged ranker is log 2. Once the better list is twice as likely and the worse
        one half as likely, it is log(1 + 4^-beta):

        >>> from torch import tensor
        >>> before = tensor([0.1]).log(), tensor([0.2]).log()
        >>> round(dpo_loss(*before, *before, beta=0.5).item(), 4)
        0.6931
        >>> round(dpo_loss(tensor([0.2]).log(), tensor([0.1]).log(), *before, beta=0.5).item(), 4)  # log(3/2)
        0.4055
    """
    margins = (winners - reference_winners) - (losers - reference_losers)
    return -functional.logsigmoid(beta * margins).mean()
