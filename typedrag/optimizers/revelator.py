# ruff: noqa: E402 - torch and its friends are asked for by a message of our own
"""HANRAG's revelator as one model, fine-tuned in its five roles at once, run, and measured in each.

Training is that of HANRAG, section 4.2 and appendix E, with LoRA, on chats: the prompts that HANRAG sends, with the
right replies. Measures are those of appendix D.
"""

from typedrag.core.extras import require

require("accelerate", "peft", "torch", "transformers")

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy
import peft
import torch
from dspy.lm15 import Message, Request, Response, Usage
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments, set_seed

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import RevelatorRole
from typedrag.core.registry import NoDeepcopy
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.files.text_files import hash_files, write_json
from typedrag.lms.adapter import SchemaAdapter
from typedrag.lms.lm import TOKENS
from typedrag.metrics import Estimate, mean_estimate
from typedrag.metrics.labels import ConfusionTable, LabelMatch, confusion
from typedrag.metrics.metric import Scored
from typedrag.optimizers import trainer as trainings
from typedrag.optimizers.compile.targets import role_metric, typed_example
from typedrag.optimizers.revelator_settings import TrainingSettings
from typedrag.programs import HANRAG
from typedrag.programs.artifact import dump_state, fingerprint
from typedrag.retrieval.local_models import LocalModel, accelerator, loading
from typedrag.runs import RunFolder, is_run
from typedrag.runs.work import Listener, Stages, ignore_progress

ADAPTER, MODEL, CHECKPOINTS, REPORT = "adapter", "model", "checkpoints", "revelator.json"
_BEFORE, _TRAINED = "loss before", "trained"
_MOST_MEASURED = 500
"""The most rows that the loss is measured on."""
Chat = list[dict[str, str]]
"""Messages with `role` and `content`; the last one is the reply."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, for tokenizers without a chat template."""

IGNORED = -100
"""The label of tokens that the loss ignores."""


@dataclass(frozen=True)
class Trained:
    """The result of a training."""

    folder: Path  # holds `adapter` (LoRA's weights), `model` (the whole model, if merged) and `revelator.json`
    rows: int  # the number of rows trained on
    left_out: int  # the number of rows that were too long
    steps: int  # the optimizer's steps
    loss_before: float  # the mean loss of a right reply's token before training, on validation rows if there are any
    loss_after: float  # the same loss after training

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def train_revelator(
    base: str,
    dataset: Dataset,
    program: HANRAG,
    out: Path,
    settings: TrainingSettings | None = None,
    *,
    resume: bool = False,
    on_step: trainings.OnStep = lambda loss: None,
) -> Trained:
    """Fine-tune a causal LM in the roles that the dataset has rows for, and save it as safetensors.

    It trains on one accelerator if torch finds any, in bfloat16 where supported, else on the CPU.

    Args:
        base: A folder with a model, or its name on the Hugging Face hub.
        dataset: Dataset `revelator`: part train is trained on, part validation measures the loss.
        program: The program whose prompts are trained on, with their demonstrations.
        out: A new folder, or that of the training to resume.
        resume: Continue from the last checkpoint in `out`; a finished training stays as it is.
        on_step: Called after each step.
    """
    trainings.check_one_process()
    settings = settings or TrainingSettings()
    identity = {
        "base": base,
        "data": dataset.fingerprint,
        "prompts": fingerprint(dump_state(program)),
        "settings": settings.model_dump(mode="json"),
    }
    if not is_run(out) and out.exists() and any(file.name != ".lock" for file in out.iterdir()):
        raise InputError(f"{out} is in use", "Name another --out")
    half = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    hint = "Name a folder with a causal LM and its tokenizer, or one of the Hugging Face hub"
    with loading(f"the base model '{base}'", hint, LMUnavailable):
        tokenizer = prepare(AutoTokenizer.from_pretrained(base, trust_remote_code=False))
        dtype = torch.bfloat16 if half else torch.float32
        network = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, trust_remote_code=False)
    set_seed(settings.seed)
    rows, left_out = encode_all(dataset.split("train"), program, tokenizer, settings.max_tokens)
    if not rows:
        raise InputError(f"{dataset.source} has no row to train on", f"{left_out} are longer than max_tokens")
    with RunFolder.open(out, identity, kind="training of a revelator", resume=resume, items={}) as run:
        if finished := run.store.read().notes.get(_TRAINED):
            return Trained(out, **finished)
        held_out = sorted(dataset.split("validation") or dataset.split("train"), key=lambda e: text_hash(e.id))
        validation, _ = encode_all(held_out[:_MOST_MEASURED], program, tokenizer, settings.max_tokens)
        lora = peft.LoraConfig(
            task_type="CAUSAL_LM",
            target_modules="all-linear",
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
        )
        model = peft.get_peft_model(network, lora)
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        trainer = trainings.QuietTrainer(
            model=model,
            args=trainer_arguments(settings, len(rows), out / CHECKPOINTS),
            train_dataset=rows,
            eval_dataset=validation or rows[:_MOST_MEASURED],
            data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORED),
        )
        if _BEFORE not in run.store.read().notes:  # measured once, for resumed trainings too
            run.store.note(_BEFORE, trainer.evaluate()["eval_loss"])
        trainings.train(
            trainer, resume_from=trainings.last_checkpoint(out / CHECKPOINTS) if resume else None, on_step=on_step
        )
        before, after = run.store.read().notes[_BEFORE], trainer.evaluate()["eval_loss"]
        if not math.isfinite(after):
            raise InputError(
                f"the training came to a loss of {after}", "Lower the learning rate, and name another --out"
            )
        model.save_pretrained(out / ADAPTER)
        tokenizer.save_pretrained(out / ADAPTER)
        if settings.merge:
            model.merge_and_unload().save_pretrained(out / MODEL)
            tokenizer.save_pretrained(out / MODEL)
        trained = Trained(out, len(rows), left_out, trainer.state.global_step, before, after)
        write_json(out / REPORT, {**identity, **trained.to_dict()})
        run.store.note(_TRAINED, {name: value for name, value in asdict(trained).items() if name != "folder"})
        return trained


def trainer_arguments(settings: TrainingSettings, rows: int, checkpoints: Path) -> TrainingArguments:
    steps_an_epoch = math.ceil(math.ceil(rows / settings.batch_size) / settings.accumulate)
    steps = settings.max_steps or math.ceil(settings.epochs * steps_an_epoch)
    return trainings.training_arguments(
        checkpoints,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        save_steps=max(1, min(settings.checkpoint_every, steps // 10)),
        save_total_limit=1,
        seed=settings.seed,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def format_chat(example: dspy.Example, program: HANRAG) -> Chat:
    """A row of the revelator's training set as a chat, with the demonstrations that the program shows."""
    role = RevelatorRole(example.subset)
    module = program.revelator().get(role)
    if module is None:
        raise InputError(f"the program asks no LM for the {role}", "Leave option hanrag.router at lm")
    typed = typed_example(role, example, program.options)
    signature = module.predict.signature
    chat: Chat = dspy.ChatAdapter.format_finetune_data(  # which `SchemaAdapter`, a JSON adapter, refuses to give
        SchemaAdapter(),
        signature,
        [dict(demo) for demo in module.predict.demos],
        {name: typed[name] for name in signature.input_fields},
        {name: typed[name] for name in signature.output_fields},
    )["messages"]
    return chat


def encode(chat: Chat, tokenizer: Any) -> dict[str, list[int]]:
    """The `input_ids` of a chat and its `labels`, which hide all but the reply and its end from the loss."""
    whole = tokenizer.apply_chat_template(chat, tokenize=False)
    prompt = tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)
    if not whole.startswith(prompt):  # some templates add text to the prompt that past replies lack
        whole = prompt + chat[-1]["content"] + (tokenizer.eos_token or "")
    asking, reply = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole[len(prompt) :]))
    return {"input_ids": asking + reply, "labels": [IGNORED] * len(asking) + reply}


def encode_all(
    examples: Sequence[dspy.Example], program: HANRAG, tokenizer: Any, max_tokens: int
) -> tuple[list[dict[str, list[int]]], int]:
    """The rows of at most `max_tokens`, and the number of longer ones: truncated, those would lose their replies."""
    encoded = [encode(format_chat(example, program), tokenizer) for example in examples]
    fitting = [row for row in encoded if len(row["input_ids"]) <= max_tokens]
    return fitting, len(encoded) - len(fitting)


def prepare(tokenizer: Any) -> Any:
    """Give a tokenizer a chat template and a padding token if it has none, and return it."""
    if not tokenizer.chat_template:
        tokenizer.chat_template = TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


@dataclass(frozen=True)
class RoleScore:
    """The score of one role."""

    role: RevelatorRole
    n: int  # the number of rows
    failed: int  # rows without a readable reply; they count as wrong
    score: float  # the accuracy; for queries, their match with the right ones
    # the score with its bootstrap interval over questions; None if there are too few rows
    interval: Estimate | None = None
    # the metric's other measures over all readable replies, such as `macro_f1`
    measures: Mapping[str, float] = field(default_factory=dict)
    majority: float | None = None  # the accuracy of always giving the most frequent label; None for queries
    # counts of given labels by right label, over readable replies; None for queries
    confusion: ConfusionTable | None = None


def evaluate_roles(
    dataset: Dataset,
    program: HANRAG,
    *,
    roles: Sequence[RevelatorRole] = tuple(RevelatorRole),
    part: str = "test",
    limit: int | None = None,
    threads: int = 16,
    listener: Listener = ignore_progress,
) -> list[RoleScore]:
    """Measure the roles that the dataset has rows for, with the LM in use.

    Args:
        dataset: Dataset `revelator`.
        program: The program with the roles; its router may be a rule.
        roles: The roles to measure.
        part: train, validation, test or all.
        limit: The most rows of a role, drawn by hash; None takes all.
    """
    roles = tuple(dict.fromkeys(roles))
    modules: dict[RevelatorRole, dspy.Module] = {RevelatorRole.ROUTER: program.router, **program.revelator()}
    drawn = sorted(dataset.split(part), key=lambda e: text_hash(str(e.id)))
    rows = [
        (role, typed_example(role, example, program.options))
        for role in roles
        for example in [e for e in drawn if e.subset == role][:limit]
    ]
    if not rows:
        raise InputError(f"{dataset.source} has no row of part '{part}' for these roles", "Name another part")
    metrics = {role: role_metric(role) for role in roles}

    def score(row: tuple[RevelatorRole, dspy.Example]) -> Scored:
        role, example = row
        return metrics[role].score(example, modules[role](**example.inputs()))

    scores = Stages(threads, listener=listener).run("rows", score, rows)
    scored = [(*row, s if isinstance(s, Scored) else None) for row, s in zip(rows, scores, strict=True)]
    role_scores = []
    for role, metric in metrics.items():
        of_role = [(example, score) for r, example, score in scored if r is role]
        if not of_role:
            continue
        values = [s.score if s else 0.0 for _, s in of_role]
        readable = [s for _, s in of_role if s]
        labels = [str(e[metric.field]) for e, _ in of_role] if isinstance(metric, LabelMatch) else []
        replies = [(s.details["actual"], s.details["given"]) for s in readable if "actual" in s.details]
        table = confusion([actual for actual, _ in replies], [label for _, label in replies]) if replies else None
        role_score = RoleScore(
            role=role,
            n=len(of_role),
            failed=len(of_role) - len(readable),
            score=fmean(values),
            interval=mean_estimate(values, groups=[question_group(e) for e, _ in of_role]),
            measures=metric.summarize(readable),
            majority=Counter(labels).most_common(1)[0][1] / len(labels) if labels else None,
            confusion=table,
        )
        role_scores.append(role_score)
    return role_scores


def open_local_lm(folder: Path, *, max_tokens: int = TOKENS) -> dspy.LM:
    """Open the causal LM in a folder, or LoRA weights with the base that they name; it decodes greedily.

    It answers one call at a time and does not enforce a schema; for use in earnest, run a server. Call it with
    `SchemaAdapter`, which the revelator is trained with. Replies may be cached: the LM's name holds a digest of
    its files.
    """
    engine = _Engine(folder, max_tokens)
    return dspy.LM(
        f"local/{folder.resolve().name}-{hash_files(folder)[:8]}",
        engine=engine,
        num_retries=0,
        temperature=0.0,
        max_tokens=max_tokens,
    )


class _Engine(NoDeepcopy):
    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._folder, self._max_tokens = folder, max_tokens
        self._model = LocalModel(self._load)
        with self._model:  # loaded now
            pass

    def _load(self) -> tuple[Any, Any]:
        # an adapter names its base by a folder, so nothing has to be fetched
        adapted = (self._folder / "adapter_config.json").is_file()
        kind = AutoPeftModelForCausalLM if adapted else AutoModelForCausalLM
        with loading(f"the LM in {self._folder}", "Name what was trained", LMUnavailable):
            tokenizer = prepare(AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False))
            network = kind.from_pretrained(self._folder, trust_remote_code=False, local_files_only=True)
        return network.to(accelerator()).eval(), tokenizer

    def complete(self, request: Request) -> Response:
        chat = [{"role": message.role, "content": message.text} for message in request.messages]
        if request.system is not None:
            system = request.system
            text = system if isinstance(system, str) else "".join(part.text for part in system)
            chat.insert(0, {"role": "system", "content": text})
        with self._model as (network, tokenizer), torch.inference_mode():
            prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            inputs = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(network.device)
            whole = network.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=request.config.max_tokens or self._max_tokens,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
            read = inputs["input_ids"].shape[1]
            written = whole[0, read:]
            reply = tokenizer.decode(written, skip_special_tokens=True)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(reply),
            finish_reason="stop",
            usage=Usage(input_tokens=read, output_tokens=len(written), total_tokens=read + len(written)),
        )
