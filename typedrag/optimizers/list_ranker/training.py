"""Train a list ranker: supervised by silver lists, then by preferences (RichRAG, section 3.4).

transformers' Trainer does the work, so the same training runs on a CPU or on a GPU, in one process.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import set_seed

from typedrag.datasets.pools import Pool
from typedrag.errors import InputError
from typedrag.optimizers.list_ranker.config import TrainingSettings
from typedrag.optimizers.list_ranker.preferences import Preference, candidates_of
from typedrag.optimizers.list_ranker.utility import pool_measures, silver_list, utility_table
from typedrag.optimizers.trainer import keep_to_one_device, last_checkpoint
from typedrag.retrieval.rerank.list_ranker.model import NOTHING, ListRankerModel, SmallDecoder
from typedrag.retrieval.rerank.list_ranker.ranker import ListRanker
from typedrag.retrieval.rerank.list_ranker.texts import Reader


class StepLoss(NamedTuple):
    """The loss of a training step."""

    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class TrainingOutcome:
    """The losses and the validation of a training.

    Attributes:
        losses: The losses of its steps, earlier sessions included.
        validated: The validation's measure by step, 0 being before the training; empty without
            validation pools.
        best_step: The step whose weights were kept, 0 if the training improved nothing; None without
            validation, where the last weights are kept.
        stopped: True if it ran out of time.
    """

    losses: tuple[StepLoss, ...]
    validated: dict[int, float]
    best_step: int | None
    stopped: bool


class Lesson(NamedTuple):
    """An item of the training data.

    Attributes:
        pool: Its question and candidates.
        chosen: Positions of the candidates that take part.
        lists: Lists of positions in `chosen`: one silver list, or a better and a worse one.
        reference: Log-probabilities of the better and the worse list by the ranker before the training.
    """

    pool: Pool
    chosen: tuple[int, ...]
    lists: tuple[tuple[int, ...], ...]
    reference: tuple[float, ...] = ()


class SilverLessons(torch.utils.data.Dataset[Lesson]):
    """Silver lists of pools, with candidates drawn anew each time a list is read.

    Args:
        pools: Pools that `utility_table` accepts.
        candidates: The most passages of a lesson; up to half of them cover something.

    Attributes:
        left_out: The number of pools that teach nothing: no passage covers anything, so the silver list is empty.
    """

    learning_rate = 5e-5
    candidates = 32

    def __init__(self, pools: Sequence[Pool], candidates: int, length: int) -> None:
        tables = [utility_table(pool) for pool in pools]
        self._taught = [(pool, table) for pool, table in zip(pools, tables, strict=True) if table.any()]
        self.left_out = len(pools) - len(self._taught)
        self._candidates = candidates
        self._length = length

    def __len__(self) -> int:
        return len(self._taught)

    def __getitem__(self, number: int) -> Lesson:
        pool, table = self._taught[number]
        chosen = self._draw(table)
        return Lesson(pool, chosen, (tuple(silver_list(table[list(chosen)], self._length)),))

    def _draw(self, table: Any) -> tuple[int, ...]:
        everything = range(len(table))
        if len(table) <= self._candidates:
            return tuple(everything)
        worth = [n for n in everything if table[n].any()]
        good = random.sample(worth, min(len(worth), max(1, self._candidates // 2)))
        others = random.sample([n for n in everything if n not in good], self._candidates - len(good))
        return tuple(sorted([*good, *others]))


class PreferenceLessons(torch.utils.data.Dataset[Lesson]):
    """Pairs of lists, with their log-probabilities by the ranker before the training.

    Args:
        candidates: The most passages of a lesson, both lists' always among them; None takes the whole pool (eq. 12).
        seed: The seed of the draw of candidates.
        bf16: True if the ranker will be trained in half precision; the reference is computed in the same.
    """

    learning_rate = 3e-6

    def __init__(
        self,
        preferences: Sequence[Preference],
        ranker: ListRanker,
        candidates: int | None,
        seed: int,
        bf16: bool = False,
    ) -> None:
        rng = random.Random(seed)
        collate = Collator(ranker)
        self._lessons = []
        for pool, winner, loser in preferences:
            held = sorted({*winner.ranking, *loser.ranking})
            others = [n for n in range(len(pool.passages)) if n not in held]
            room = len(others) if candidates is None else min(len(others), max(0, candidates - len(held)))
            chosen = tuple(sorted([*held, *rng.sample(others, room)]))
            place = {n: at for at, n in enumerate(chosen)}
            lists = tuple(tuple(place[n] for n in one.ranking) for one in (winner, loser))
            half = torch.autocast(ranker.model.chosen.weight.device.type, torch.bfloat16, enabled=bf16)
            with torch.inference_mode(), half:
                [reference] = ranker.model.eval()(**collate.tensors([Lesson(pool, chosen, lists)])).tolist()
            self._lessons.append(Lesson(pool, chosen, lists, tuple(reference)))

    def __len__(self) -> int:
        return len(self._lessons)

    def __getitem__(self, number: int) -> Lesson:
        return self._lessons[number]


class Collator:
    """Makes tensors from lessons."""

    def __init__(self, ranker: ListRanker) -> None:
        self._reader = Reader(ranker.tokenizer, ranker.settings)
        self._device = ranker.model.chosen.weight.device

    def __call__(self, lessons: Sequence[Lesson]) -> dict[str, Tensor]:
        """Return a batch of lessons as tensors; the Trainer moves them to its device."""
        tensors = self._tensors(lessons)
        reference = [lesson.reference for lesson in lessons]
        return {**tensors, **({"reference": torch.tensor(reference)} if all(reference) else {})}

    def tensors(self, lessons: Sequence[Lesson]) -> dict[str, Tensor]:
        """The inputs of the model's `forward`, on the model's device."""
        return {name: tensor.to(self._device) for name, tensor in self._tensors(lessons).items()}

    def _tensors(self, lessons: Sequence[Lesson]) -> dict[str, Tensor]:
        read = [self._reader.read(candidates_of(lesson.pool, lesson.chosen)) for lesson in lessons]
        ids, mask = self._reader.pad([row for sequences in read for row in sequences.ids])
        pooled = torch.tensor([span for sequences in read for span in sequences.pooled])
        longest = max(1, *(len(one) for lesson in lessons for one in lesson.lists))
        lists = [[[*one, *[NOTHING] * (longest - len(one))] for one in lesson.lists] for lesson in lessons]
        sizes = torch.tensor([len(lesson.chosen) for lesson in lessons])
        return {"ids": ids, "mask": mask, "pooled": pooled, "sizes": sizes, "lists": torch.tensor(lists)}


def train_list_ranker(
    ranker: ListRanker,
    lessons: SilverLessons | PreferenceLessons,
    folder: Path,
    settings: TrainingSettings,
    *,
    validation: Sequence[Pool] = (),
    resume: bool = False,
    on_step: Callable[[StepLoss], object] = lambda loss: None,
) -> TrainingOutcome:
    """Train a ranker in place; a killed training goes on from its last checkpoint.

    Args:
        validation: Pools whose mean nDCG@10 (NCOM without labels) chooses the best of the saved weights and
            those before the training; by default the weights of the last step are kept.
        resume: Continue from the last checkpoint, if there is one.

    Raises:
        InputError: If there is nothing to train on.
    """
    if not len(lessons):
        raise InputError("there is nothing to train on", "Give more pools, or a lower threshold for pairs")
    freeze(ranker.model, settings.frozen_layers)
    start = {name: p.detach().cpu().clone() for name, p in ranker.model.named_parameters() if p.requires_grad}
    last = last_checkpoint(folder) if resume else None
    batches = -(-len(lessons) // settings.batch)
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate or lessons.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        per_device_train_batch_size=settings.at_once,
        gradient_accumulation_steps=max(1, settings.batch // settings.at_once),
        logging_steps=1,
        save_strategy="steps",
        save_steps=max(1, batches // settings.saves),
        eval_strategy="steps" if validation else "no",
        eval_on_start=bool(validation) and last is None,
        eval_steps=max(1, batches // settings.saves),
        save_total_limit=2,
        load_best_model_at_end=bool(validation),
        metric_for_best_model=_RankerTrainer.measure if validation else None,
        greater_is_better=True,
        seed=settings.seed,
        bf16=settings.bf16,
        use_cpu=ranker.model.chosen.weight.device.type == "cpu",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        dataloader_pin_memory=False,
    )
    set_seed(settings.seed)
    watch = _Watch(settings.minutes, on_step)
    trainer = _RankerTrainer(
        ranker,
        validation,
        settings,
        args=keep_to_one_device(arguments),
        train_dataset=lessons,
        data_collator=Collator(ranker),
    )
    trainer.add_callback(watch)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=last)
    ranker.model.eval()
    outcome = _outcome(trainer, watch)
    if outcome.best_step == 0:
        ranker.model.load_state_dict(start, strict=False)
    return outcome


def freeze(model: ListRankerModel, layers: int) -> None:
    """Exclude the encoder's embeddings and its first layers from training.

    Raises:
        InputError: If the encoder has fewer layers.
    """
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


class _RankerTrainer(Trainer):
    """Minimizes the losses of lists, and validates by ranking."""

    measure = "eval_ranking"

    def __init__(self, ranker: ListRanker, pools: Sequence[Pool], settings: TrainingSettings, **options: Any) -> None:
        super().__init__(model=ranker.model, eval_dataset=list(pools) or None, **options)
        self._ranker = ranker
        self._pools = [(pool, None if is_by_labels(pool) else utility_table(pool)) for pool in pools]
        self._settings = settings
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
        """Create the optimizer, with a learning rate of their own for `new_parameters`."""
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
        values = [_quality(self._ranker, pool, table) for pool, table in self._pools]
        measured = {self.measure: fmean(values)}
        self.log(measured)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, measured)
        return measured


class _Watch(TrainerCallback):
    """Reports losses, and ends a training whose time is up."""

    def __init__(self, minutes: float | None, on_step: Callable[[StepLoss], object]) -> None:
        self._until = None if minutes is None else time.monotonic() + 60 * minutes
        self._tell = on_step
        self.stopped = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self._tell(StepLoss(state.global_step, state.max_steps, logs["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._until is not None and time.monotonic() > self._until and state.global_step < state.max_steps:
            self.stopped = True
            control.should_save = control.should_training_stop = True


def is_by_labels(pool: Pool) -> bool:
    """True if rankings of the pool are validated by nDCG; by NCOM if it has sub-answers, or no label above 0."""
    return not pool.sub_answers and any(p.label for p in pool.passages)


def _quality(ranker: ListRanker, pool: Pool, table: Any) -> float:
    ranking = ranker.write(candidates_of(pool), k=10)
    return pool_measures(pool, ranking, table).get("ndcg" if table is None else "ncom", 0.0)


def _outcome(trainer: Trainer, watch: _Watch) -> TrainingOutcome:
    state = trainer.state
    history: list[dict[str, Any]] = state.log_history
    validated = {h["step"]: h[_RankerTrainer.measure] for h in history if _RankerTrainer.measure in h}
    return TrainingOutcome(
        losses=tuple(StepLoss(h["step"], state.max_steps, h["loss"]) for h in history if "loss" in h),
        validated=validated,
        best_step=max(validated, key=lambda step: validated[step]) if state.best_model_checkpoint else None,
        stopped=watch.stopped,
    )


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

    Args:
        winners: Log-probabilities of the better lists by the ranker in training.
        losers: Log-probabilities of the worse lists by the ranker in training.
        reference_winners: Log-probabilities of the better lists by the ranker before the training.
        reference_losers: Log-probabilities of the worse lists by the ranker before the training.
        beta: The weight of changes from the reference.

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
