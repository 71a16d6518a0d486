"""Evaluate the revelator in each of its roles, on rows that it was not trained on (HANRAG, appendix D).

`open_local_lm` opens a trained model in this process with transformers, to measure it without a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy
import torch
from dspy.lm15 import Message, Request, Response, Usage
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import RevelatorRole
from typedrag.core.sharing import Shared
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.files.text_files import hash_files
from typedrag.lms.lm import TOKENS
from typedrag.metrics import Estimate, mean_estimate
from typedrag.metrics.labels import ConfusionTable, LabelMatch, confusion
from typedrag.metrics.metric import Metric, Scored
from typedrag.optimizers.compile.targets.revelator import metric_of, typed_example
from typedrag.optimizers.revelator.training import prepare
from typedrag.programs import HANRAG
from typedrag.retrieval.local_models import LocalModel, accelerator, loading
from typedrag.runs.stages import Listener, Stages, unheard


@dataclass(frozen=True)
class RoleScore:
    """The score of one role.

    Attributes:
        n: The number of rows.
        failed: Rows without a readable reply; they count as wrong.
        score: The accuracy; for queries, their match with the right ones.
        interval: The score with its bootstrap interval over questions; None if there are too few rows.
        measures: The metric's other measures over all readable replies, such as `macro_f1`.
        majority: The accuracy of always giving the most frequent label; None for queries.
        confusion: Counts of given labels by right label, over readable replies; None for queries.
    """

    role: RevelatorRole
    n: int
    failed: int
    score: float
    interval: Estimate | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    majority: float | None = None
    confusion: ConfusionTable | None = None


def evaluate_roles(
    dataset: Dataset,
    program: HANRAG,
    *,
    roles: Sequence[RevelatorRole] = tuple(RevelatorRole),
    part: str = "test",
    limit: int | None = None,
    threads: int = 16,
    listener: Listener = unheard,
) -> list[RoleScore]:
    """Measure the roles that the dataset has rows for, with the LM in use.

    Args:
        dataset: Dataset `revelator`.
        program: The program with the roles; its router may be a rule.
        roles: The roles to measure.
        part: train, validation, test or all.
        limit: The most rows of a role, drawn by hash; None takes all.

    Raises:
        InputError: If there is no row for these roles.
        LMUnavailable: If the LM cannot be used.
    """
    roles = tuple(dict.fromkeys(roles))
    modules: dict[RevelatorRole, dspy.Module] = {RevelatorRole.ROUTER: program.router, **program.revelator()}
    drawn = sorted(dataset.split(part), key=lambda e: hash_of(str(e.id)))
    rows = [
        (role, typed_example(role, example, program.options))
        for role in roles
        for example in [e for e in drawn if e.subset == role][:limit]
    ]
    if not rows:
        raise InputError(f"{dataset.source} has no row of part '{part}' for these roles", "Name another part")
    metrics = {role: metric_of(role) for role in roles}

    def score(row: tuple[RevelatorRole, dspy.Example]) -> Scored:
        role, example = row
        return metrics[role].score(example, modules[role](**example.inputs()))

    scores = Stages(threads, listener=listener).run("rows", score, rows)
    scored = [(*row, s if isinstance(s, Scored) else None) for row, s in zip(rows, scores, strict=True)]
    return [
        _role_score(role, of_role, metrics[role])
        for role in roles
        if (of_role := [(example, score) for r, example, score in scored if r is role])
    ]


def _role_score(role: RevelatorRole, scored: Sequence[tuple[dspy.Example, Scored | None]], metric: Metric) -> RoleScore:
    values = [s.score if s else 0.0 for _, s in scored]
    read = [s for _, s in scored if s]
    labels = [str(e[metric.field]) for e, _ in scored] if isinstance(metric, LabelMatch) else []
    replies = [(s.details["actual"], s.details["given"]) for s in read if "actual" in s.details]
    return RoleScore(
        role=role,
        n=len(scored),
        failed=len(scored) - len(read),
        score=fmean(values),
        interval=mean_estimate(values, groups=[group_of(e) for e, _ in scored]),
        measures=metric.summarize(read),
        majority=Counter(labels).most_common(1)[0][1] / len(labels) if labels else None,
        confusion=confusion([actual for actual, _ in replies], [label for _, label in replies]) if replies else None,
    )


def open_local_lm(folder: Path, *, max_tokens: int = TOKENS) -> dspy.LM:
    """Open the causal LM in a folder, or LoRA weights with the base that they name; it decodes greedily.

    It answers one call at a time and does not enforce a schema; for use in earnest, run a server. Call it with
    `SchemaAdapter`, which the revelator is trained with. Replies may be cached: the LM's name holds a digest of
    its files.

    Raises:
        LMUnavailable: If the LM cannot be loaded.
    """
    engine = _Engine(folder, max_tokens)
    return dspy.LM(
        f"local/{folder.resolve().name}-{hash_files(folder)[:8]}",
        engine=engine,
        num_retries=0,
        temperature=0.0,
        max_tokens=max_tokens,
    )


class _Engine(Shared):
    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._folder, self._max_tokens = folder, max_tokens
        self._model = LocalModel(self._load)
        with self._model:  # loaded now
            pass

    def _load(self) -> tuple[Any, Any]:
        """The network and its tokenizer."""
        # an adapter names its base by a folder, so nothing has to be fetched
        adapted = (self._folder / "adapter_config.json").is_file()
        kind = AutoPeftModelForCausalLM if adapted else AutoModelForCausalLM
        with loading(f"the LM in {self._folder}", "Name what was trained", LMUnavailable):
            tokenizer = prepare(AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False))
            network = kind.from_pretrained(self._folder, trust_remote_code=False, local_files_only=True)
        return network.to(accelerator()).eval(), tokenizer

    def complete(self, request: Request) -> Response:
        """Return the reply to a request of DSPy."""
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
