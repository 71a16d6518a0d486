"""Fine-tuning an LM on runs of the program, through a provider that can."""

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
"""That DSPy can fine-tune with."""
FINETUNED = "finetuned.json"
"""In the folder of a compile: the LM that came of each training, by a digest of what it was trained on."""


class FinetuneSettings(OptimizerSettings):
    """Of `bootstrap-finetune`."""

    metric_threshold: float | None = Field(default=None, gt=0, le=1)
    """The score from which on a run is trained on. By default what the base gets on average."""
    multitask: bool = True
    """One model for all predictors, or one for each."""
    exclude_demos: bool = True
    """Whether the prompts that are trained on, and the compiled program, are without demonstrations."""
    train_kwargs: dict[str, Any] = Field(default_factory=dict)
    """For the provider, such as `n_epochs`."""


@optimizer
class BootstrapFinetune(Optimizer):
    """Fine-tunes the task's LM on good runs of the program, by the teacher's LM (`dspy.BootstrapFinetune`).

    The compiled program does not hold the LM that came out: its name is the candidate's `lm`, and
    the program is to be run with it. What a provider asks for training is not in the budget, and a
    compile that is resumed pays for no training twice.
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
        """The base and what comes out, and each training example once."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation + train)

    def compile(self, run: Compilation) -> dspy.Module:
        """The program, its predictors with the LM that was fine-tuned.

        Raises:
            InputError: If no run is good enough to train on.
            LMUnavailable: If the provider fails.
        """
        wanted = self.settings
        student, teacher = run.student.deepcopy(), run.student.deepcopy()
        student.set_lm(run.task_lm)
        teacher.set_lm(run.teacher_lm)
        threshold = run.threshold(wanted.metric_threshold)

        def is_good(*given: Any) -> float:  # DSPy takes a prediction for good whatever its score
            scored = run.scoring(*given)
            return float(scored >= threshold and not scored.unjudged)

        teleprompter = _PaidOnce(
            run.log_dir / FINETUNED,
            metric=is_good,
            multitask=wanted.multitask,
            adapter=TrainingAdapter() if isinstance(adapter_for(run.task_lm), SchemaAdapter) else ChatAdapter(),
            train_kwargs=wanted.train_kwargs,
            exclude_demos=wanted.exclude_demos,
            num_threads=max(run.threads, len(student.predictors())),  # one for each job
        )
        return teleprompter.compile(student, trainset=list(run.trainset), teacher=teacher)


class _PaidOnce(dspy.BootstrapFinetune):
    """Trains no LM twice on the same."""

    def __init__(self, file: Path, **settings: Any) -> None:
        super().__init__(**settings)
        self._file = file

    def finetune_lms(self, finetune_dict: dict[Any, dict[str, Any]]) -> dict[Any, dspy.LM]:
        """The LM that came of each training, those that were done before among them."""
        done: dict[str, str] = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        digests = {key: _digest(wanted) for key, wanted in finetune_dict.items()}
        lms = {key: finetune_dict[key]["lm"].copy(model=done[d]) for key, d in digests.items() if d in done}
        left = {key: wanted for key, wanted in finetune_dict.items() if key not in lms}
        if any(not wanted["train_data"] for wanted in left.values()):
            raise InputError(
                "no run of the program on the training examples is good enough to train on",
                "Give more of them, or a lower metric_threshold",
            )
        try:
            made = super().finetune_lms(left)
        except Exception as error:  # a provider's own
            raise LMUnavailable(
                f"the provider has fine-tuned nothing: {first_line(error)}", "Mend what it says, and --resume"
            ) from error
        write_json(self._file, {**done, **{digests[key]: lm.model for key, lm in made.items()}})
        return {**lms, **made}


def _digest(wanted: Mapping[str, Any]) -> str:
    """Of an LM and what it is to be trained on, and how."""
    held = [wanted["lm"].model, str(wanted["train_data_format"]), wanted["train_data"], wanted["train_kwargs"]]
    return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()[:16]


class TrainingAdapter(SchemaAdapter):
    """Writes what is trained on as the adapter asks for it later; DSPy's JSON adapter cannot."""

    def format_finetune_data(
        self, signature: Any, demos: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> dict[str, list[Any]]:
        """A chat of `messages`, the last of which is the reply."""
        return dspy.ChatAdapter.format_finetune_data(self, signature, demos, inputs, outputs)
