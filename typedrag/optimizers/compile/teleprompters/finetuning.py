"""Fine-tune an LM on runs of the program, through a provider that offers training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy
from dspy.clients.openai import OpenAIProvider
from pydantic import Field

from typedrag.errors import InputError, LMUnavailable, first_line
from typedrag.files.text_files import write_json
from typedrag.lms.adapter import ChatAdapter, SchemaAdapter
from typedrag.lms.lm import adapter_for
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, OptimizerSettings, optimizer

PROVIDERS = (
    "openai/MODEL at OpenAI itself",
    "in Python, handed to compile_module: databricks/MODEL opened with dspy's DatabricksProvider",
    "and openai/local:MODEL opened with dspy's LocalProvider, which needs a GPU, sglang and trl",
)
"""LMs whose providers DSPy can fine-tune with."""
FINETUNED = "finetuned.json"
"""The file in a compile's folder with the LM of each training, by a digest of the training's data."""


class FinetuneSettings(OptimizerSettings):
    """Options of `bootstrap-finetune`."""

    metric_threshold: float | None = Field(default=None, gt=0, le=1)
    """The least score of a run to train on; by default the base's mean."""
    multitask: bool = True
    """Train one model for all predictors, instead of one for each."""
    exclude_demos: bool = True
    """Leave demonstrations out of the training prompts and of the compiled program."""
    train_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments for the provider, such as `n_epochs`."""


@optimizer
class BootstrapFinetune(Optimizer):
    """Fine-tunes the task's LM on good runs of the program by the teacher's LM (`dspy.BootstrapFinetune`).

    The compiled program does not hold the new LM: its name is the candidate's `lm`, and the program is to
    be run with it. The budget does not count what the provider charges for training; a resumed compile pays
    for no training twice.
    """

    name: ClassVar[str] = "bootstrap-finetune"
    about: ClassVar[str] = "the LM itself fine-tuned on the program's good runs, by a provider that can"
    Settings = FinetuneSettings
    settings: FinetuneSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse an LM whose provider cannot fine-tune."""
        lm = request.task_lm
        elsewhere = isinstance(lm.provider, OpenAIProvider) and lm.kwargs.get("api_base")
        if elsewhere or not lm.provider.finetunable:
            raise InputError(
                f"LM '{lm.model}' cannot be fine-tuned: its provider offers no training",
                f"LMs that can be: {'; '.join(PROVIDERS)}",
            )

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base, the compiled program, and each training example once."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation + train)

    def compile(self, run: Compilation) -> dspy.Module:
        """The program, with the fine-tuned LM in its predictors.

        Raises:
            InputError: If no run is good enough to train on.
            LMUnavailable: If the provider fails.
        """
        settings = self.settings
        student, teacher = run.student.deepcopy(), run.student.deepcopy()
        student.set_lm(run.task_lm)
        teacher.set_lm(run.teacher_lm)
        threshold = run.threshold(settings.metric_threshold)

        def is_good(*case: Any) -> float:  # a float, since DSPy takes any prediction of a metric for success
            scored = run.scoring(*case)
            return float(scored >= threshold and not scored.unjudged)

        teleprompter = _PaidOnce(
            run.log_dir / FINETUNED,
            metric=is_good,
            multitask=settings.multitask,
            adapter=TrainingAdapter() if isinstance(adapter_for(run.task_lm), SchemaAdapter) else ChatAdapter(),
            train_kwargs=settings.train_kwargs,
            exclude_demos=settings.exclude_demos,
            num_threads=max(run.threads, len(student.predictors())),  # one for each job
        )
        return teleprompter.compile(student, trainset=list(run.trainset), teacher=teacher)


class _PaidOnce(dspy.BootstrapFinetune):
    """Trains no LM twice on the same data."""

    def __init__(self, file: Path, **settings: Any) -> None:
        super().__init__(**settings)
        self._file = file

    def finetune_lms(self, finetune_dict: dict[Any, dict[str, Any]]) -> dict[Any, dspy.LM]:
        """The LM of each training, including earlier ones."""
        done: dict[str, str] = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        digests = {key: _digest(job) for key, job in finetune_dict.items()}
        lms = {key: finetune_dict[key]["lm"].copy(model=done[d]) for key, d in digests.items() if d in done}
        left = {key: job for key, job in finetune_dict.items() if key not in lms}
        if any(not job["train_data"] for job in left.values()):
            raise InputError(
                "no run of the program on the training examples is good enough to train on",
                "Give more of them, or a lower metric_threshold",
            )
        try:
            trained = super().finetune_lms(left)
        except Exception as error:  # each provider raises its own
            raise LMUnavailable(
                f"the provider has fine-tuned nothing: {first_line(error)}", "Mend what it says, and --resume"
            ) from error
        write_json(self._file, {**done, **{digests[key]: lm.model for key, lm in trained.items()}})
        return {**lms, **trained}


def _digest(job: Mapping[str, Any]) -> str:
    """The digest of a training: its LM, data and arguments."""
    held = [job["lm"].model, str(job["train_data_format"]), job["train_data"], job["train_kwargs"]]
    return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()[:16]


class TrainingAdapter(SchemaAdapter):
    """Formats training data as `SchemaAdapter` formats prompts; DSPy's JSON adapter has no format for training."""

    def format_finetune_data(
        self, signature: Any, demos: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> dict[str, list[Any]]:
        """Return a chat of `messages`; the last one is the reply."""
        return dspy.ChatAdapter.format_finetune_data(self, signature, demos, inputs, outputs)
