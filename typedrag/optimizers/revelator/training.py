"""Fine-tune the revelator: one model, all roles mixed, with LoRA (HANRAG, section 4.2, appendix E)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.errors import InputError, LMUnavailable, first_line
from typedrag.extras import require
from typedrag.files.text_files import write_json
from typedrag.optimizers.revelator.chats import IGNORED, encode_all, prepare
from typedrag.optimizers.trainer import check_one_process, keep_to_one_device, last_checkpoint
from typedrag.programs import HANRAG
from typedrag.programs.artifact.state import fingerprint, state_of
from typedrag.runs import RunFolder, Store, is_run

ADAPTER, MODEL, CHECKPOINTS, REPORT = "adapter", "model", "checkpoints", "revelator.json"
_BEFORE, _TRAINED = "loss before", "trained"
_WATCHED = 500
"""The most rows that the loss is measured on."""


class TrainingSettings(BaseModel):
    """Settings of the revelator's fine-tuning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: PositiveFloat = 1.0
    """Passes over the rows (appendix E: one)."""
    max_steps: PositiveInt | None = None
    """The number of steps, instead of `epochs`."""
    learning_rate: PositiveFloat = 1e-4
    """The highest learning rate (appendix E: 1e-4); it falls as a cosine."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps in which the learning rate rises (appendix E: 10 %)."""
    batch_size: PositiveInt = 8
    """Rows in a batch."""
    accumulate: PositiveInt = 1
    """Batches in a step."""
    lora_rank: PositiveInt = 8
    """The rank of LoRA's matrices (8 in LLaMA-Factory, which the paper trains with)."""
    lora_alpha: PositiveInt = Field(default_factory=lambda data: 2 * data.get("lora_rank", 1))  # 1: rank was refused
    """LoRA's weights are scaled by `lora_alpha` / `lora_rank`; by default twice the rank, as in LLaMA-Factory."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """The dropout of LoRA's layers."""
    max_tokens: PositiveInt = 2048
    """The most tokens of a row; longer rows are left out."""
    checkpoint_every: PositiveInt = 500
    """Steps between checkpoints, from which a killed training goes on; at most a tenth of all steps."""
    gradient_checkpointing: bool = False
    """Saves memory, costs time."""
    merge: bool = True
    """Also save the whole model, which a server can load as it is."""
    seed: int = 0
    """The seed of LoRA's weights and of the order of the rows."""


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
        folder: Holds `adapter` (LoRA's weights), `model` (the whole model, if merged) and `revelator.json`.
        rows: The number of rows trained on.
        left_out: The number of rows that were too long.
        steps: The optimizer's steps.
        loss_before: The mean loss of a right reply's token before training, on validation rows if there are any.
        loss_after: The same loss after training.
    """

    folder: Path
    rows: int
    left_out: int
    steps: int
    loss_before: float
    loss_after: float

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**asdict(self), "folder": str(self.folder)}


def train_revelator(
    base: str,
    dataset: Dataset,
    program: HANRAG,
    out: Path,
    settings: TrainingSettings | None = None,
    *,
    resume: bool = False,
    on_step: Callable[[int, int, float | None], None] = lambda step, steps, loss: None,
) -> Trained:
    """Fine-tune a causal LM in the roles that the dataset has rows for, and save it as safetensors.

    It trains on one accelerator if torch finds any, in bfloat16 where supported, else on the CPU.

    Args:
        base: A folder with a model, or its name on the Hugging Face hub.
        dataset: Dataset `revelator`: part train is trained on, part validation measures the loss.
        program: The program whose prompts are trained on, with their demonstrations.
        out: A new folder, or that of the training to resume.
        resume: Continue from the last checkpoint in `out`; a finished training stays as it is.
        on_step: Called with the step, the number of steps, and the loss if it is known.

    Raises:
        InputError: If there is nothing to train on, `out` is in use, or this is one of several processes.
        LMUnavailable: If the base cannot be loaded, or a package for training is not installed.
    """
    check_one_process()
    settings = settings or TrainingSettings()
    identity = _identity(base, dataset, program, settings)
    if not is_run(out) and out.exists() and any(file.name != ".lock" for file in out.iterdir()):
        raise InputError(f"{out} is in use", "Name another --out")
    transformers, peft = _libraries()
    tokenizer, model = _load(base, transformers)
    transformers.set_seed(settings.seed)
    train, left_out = encode_all(dataset.split("train"), program, tokenizer, settings.max_tokens)
    if not train:
        raise InputError(f"{dataset.source} has no row to train on", f"{left_out} are longer than max_tokens")
    with RunFolder.open(out, identity, kind="training of a revelator", resume=resume, items={}) as run:
        if trained := run.store.read().notes.get(_TRAINED):
            return Trained(out, **trained)
        watched = sorted(dataset.split("validation") or dataset.split("train"), key=lambda e: hash_of(e.id))
        validation, _ = encode_all(watched[:_WATCHED], program, tokenizer, settings.max_tokens)

        lora = peft.LoraConfig(
            task_type="CAUSAL_LM",
            target_modules="all-linear",
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
        )
        model = peft.get_peft_model(model, lora)
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        trainer = transformers.Trainer(
            model=model,
            args=keep_to_one_device(_arguments(out, settings, len(train), transformers)),
            train_dataset=train,
            eval_dataset=validation or train[:_WATCHED],
            data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORED),
            callbacks=[_watching(on_step, transformers)],
        )
        trainer.remove_callback(transformers.PrinterCallback)  # stdout is for data
        before = _loss_before(run.store, trainer)
        trainer.train(resume_from_checkpoint=last_checkpoint(out / CHECKPOINTS) if resume else None)
        after = trainer.evaluate()["eval_loss"]
        result = Trained(out, len(train), left_out, trainer.state.global_step, before, after)
        _save(result, identity, trainer.model, tokenizer, settings)
        run.store.note(_TRAINED, {name: value for name, value in asdict(result).items() if name != "folder"})
        return result


def _arguments(out: Path, settings: TrainingSettings, rows: int, transformers: Any) -> Any:
    import torch

    an_epoch = math.ceil(math.ceil(rows / settings.batch_size) / settings.accumulate)
    steps = settings.max_steps or math.ceil(settings.epochs * an_epoch)
    half = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return transformers.TrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        bf16=half,
        save_steps=max(1, min(settings.checkpoint_every, steps // 10)),
        save_total_limit=1,
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        seed=settings.seed,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def _watching(on_step: Callable[[int, int, float | None], None], transformers: Any) -> Any:
    class StepShown(transformers.TrainerCallback):
        """Passes on the step and the last loss."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            losses: Sequence[Any] = [entry["loss"] for entry in state.log_history if "loss" in entry]
            on_step(state.global_step, state.max_steps, losses[-1] if losses else None)

    return StepShown()


def _load(base: str, transformers: Any) -> tuple[Any, Any]:
    import torch

    dtype = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise LMUnavailable(
            f"the base model '{base}' cannot be loaded: {first_line(error)}",
            "Name a folder with a causal LM and its tokenizer, or one of the Hugging Face hub",
        ) from error
    return prepare(tokenizer), model


def _libraries() -> tuple[Any, Any]:
    require("accelerate", "peft", "transformers")  # transformers' Trainer imports accelerate
    import peft
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers, peft


def _identity(base: str, dataset: Dataset, program: HANRAG, settings: TrainingSettings) -> dict[str, Any]:
    return {
        "base": base,
        "data": dataset.fingerprint,
        "prompts": fingerprint(state_of(program)),
        "settings": settings.model_dump(mode="json"),
    }


def _loss_before(store: Store, trainer: Any) -> float:
    """The loss of the base, measured once for resumed trainings too."""
    if _BEFORE not in store.read().notes:
        store.note(_BEFORE, trainer.evaluate()["eval_loss"])
    return float(store.read().notes[_BEFORE])


def _save(trained: Trained, identity: dict[str, Any], model: Any, tokenizer: Any, settings: TrainingSettings) -> None:
    if not math.isfinite(trained.loss_after):
        raise InputError(
            f"the training came to a loss of {trained.loss_after}", "Lower the learning rate, and name another --out"
        )
    out = trained.folder
    model.save_pretrained(out / ADAPTER)
    tokenizer.save_pretrained(out / ADAPTER)
    if settings.merge:
        model.merge_and_unload().save_pretrained(out / MODEL)
        tokenizer.save_pretrained(out / MODEL)
    write_json(out / REPORT, {**identity, **trained.to_dict()})
