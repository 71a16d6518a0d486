"""The objects of a compile, built from its configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of, sample
from typedrag.errors import InputError
from typedrag.experiments.balance import question_type_of
from typedrag.experiments.compare.truth import with_truthfulness
from typedrag.experiments.evaluate.config import LMConfig, MetricConfig
from typedrag.experiments.evaluate.question_typing import untyped
from typedrag.experiments.resources import (
    Resources,
    check_measurable,
    dataset_of,
    git_commit,
    open_metered,
    options_of,
    reranker_of,
    with_fingerprints,
)
from typedrag.experiments.tracking.registry import check_registration
from typedrag.lms.cost import LEDGER, Spending, track_cost
from typedrag.lms.lm import default_spec, reply_settings
from typedrag.lms.replies import REPLIES
from typedrag.metrics import metric_class, risk_of
from typedrag.metrics.objective import Objective
from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.targets import IN_ORDER, JudgeTarget, Target, targets_for
from typedrag.optimizers.compile.teleprompters import Budget, CompileRequest, Optimizer, build_optimizer
from typedrag.optimizers.compile.teleprompters.budget import Ledger, spent_by
from typedrag.optimizers.compile.teleprompters.scoring import read_call
from typedrag.programs import Program
from typedrag.programs.artifact.compiled import without_secrets
from typedrag.programs.loading import ProgramSource
from typedrag.programs.options import TYPE_CLASSIFIERS
from typedrag.redaction import Redactor, redactor_for
from typedrag.retrieval import reranker_identity

COMPILE, TYPES = "compile", "types"


class CompileResources:
    """The objects of a compile and of its test; each is built when it is first used.

    Args:
        config: The configuration of the compile.
        out: The folder of the compile.
        types_by_lm: Let the LM name types of questions where the program does; else the default classifier does.
    """

    def __init__(self, config: CompileConfig, out: Path, *, types_by_lm: bool = True) -> None:
        self.config, self._types_by_lm = config, types_by_lm
        self.resources = Resources(config.test_of(config.program), config.replies or out / REPLIES)
        self._types = out / COMPILE / TYPES

    def check(self) -> None:
        """Check the configuration before anything is loaded: names, options, scorers, metrics, the registered model."""
        config, source = self.config, self.source
        source.check_unlabelled(options_of(config.program, source), config.program.retriever)
        _ = self.optimizer
        if config.register_as and self.judge:
            raise InputError("a judge cannot be registered, only programs can", "Leave out --register")
        check_registration(config.register_as, config.tracking)
        for metric in config.against:
            with self._or_metrics():
                metric_class(metric.name).check_scorer(config.scorer, **metric.options)
        if self.own_labels and config.against:
            names = ", ".join(metric.name for metric in config.against)
            raise InputError(
                f"'{config.modules}' is compiled by labels of its own, not against {names}", "Leave out --metric"
            )

    @contextmanager
    def _or_metrics(self) -> Iterator[None]:
        """Add a hint to errors about the default metrics: others can be named."""
        try:
            yield
        except InputError as error:
            others = "" if self.config.metrics else ", or what to compile against: --metric truthfulness=1,similarity=1"
            raise InputError(error.problem, f"{error.mend}{others}") from None

    @property
    def source(self) -> ProgramSource:
        """The source of the program that is compiled."""
        return self.resources.source(self.config.program)

    @property
    def lm(self) -> dspy.LM:
        """The LM that the program is compiled for."""
        return self.resources.lm

    @property
    def risk(self) -> str:
        """The known risk of compiling against these metrics; empty if none."""
        return risk_of(m.name for m in self.config.against)

    @cached_property
    def optimizer(self) -> Optimizer:
        """The teleprompter, with its options."""
        config = self.config
        return build_optimizer(config.optimizer.name, config.optimizer.options, config.budget.name)

    @cached_property
    def budget(self) -> Budget:
        """The budget of the configuration; a limit that is not given is that of its name."""
        limits = self.config.budget
        return Budget(lm_calls=limits.lm_calls or Budget.named(limits.name).lm_calls, tokens=limits.tokens)

    @cached_property
    def base(self) -> Program:
        """The program that is compiled."""
        return self.resources.program(self.config.program)

    @cached_property
    def targets(self) -> list[Target]:
        """The targets, in the order in which they are compiled."""
        spec = self.config.modules
        return targets_for(spec, self.base if spec == IN_ORDER else None)

    @property
    def judge(self) -> JudgeTarget | None:
        """The judge that is compiled; None if a program is compiled."""
        [*others, last] = self.targets
        return last if isinstance(last, JudgeTarget) and not others else None

    @property
    def own_labels(self) -> bool:
        """True if the target is compiled by labels of its own instead of whole answers."""
        return self.targets[-1].metric() is not None

    @cached_property
    def _read(self) -> Dataset:
        return dataset_of(self.config.dataset)

    @cached_property
    def types(self) -> int:
        """The number of questions whose types the LM is to name."""
        asks = not self.own_labels and TYPE_CLASSIFIERS.parse(self.resources.type_classifier).kind == "lm"
        return len(untyped(self._read.examples)) if asks else 0

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset, with all its splits; with the question types that the program names, if it does.

        Raises:
            InputError: If the budget leaves nothing once the LM has named them.
        """
        if self.own_labels or (self.types and not self._types_by_lm):
            return self._read
        if self.types and self.budget.forbids(Spending(), calls_ahead=self.types + 1):
            raise InputError(
                f"the LM would name the types of {self.types:,} questions, which leaves nothing of the "
                f"{self.budget.lm_calls:,} LM calls of the budget",
                "Label them as question_type, name a classifier that asks no LM: --set dataset.type_classifier=linear, "
                "or allow more: --max-lm-calls",
            )
        if self.types:
            self._types.mkdir(parents=True, exist_ok=True)
        with track_cost(Ledger(self._types / LEDGER)):
            return replace(self._read, examples=tuple(self.resources.typed(self._read.examples)))

    @property
    def spent_on_types(self) -> Spending:
        """The cost of the types that the LM has named, also before the compile was resumed."""
        return spent_by(self._types / LEDGER)

    @cached_property
    def prompt_lm(self) -> dspy.LM | None:
        """The LM that writes instructions; None if it is the task's."""
        config = self._like_the_task_lm(self.config.prompt_lm)
        return open_metered(config, "prompt LM") if config else None

    @cached_property
    def teacher_lm(self) -> dspy.LM | None:
        """The LM that makes demonstrations; None if it is the task's."""
        config = self._like_the_task_lm(self.config.teacher_lm)
        return open_metered(config, "teacher LM") if config else None

    @cached_property
    def redactor(self) -> Redactor:
        """A redactor of the keys and addresses of all LMs."""
        lms = (self.lm, self.prompt_lm, self.teacher_lm, self.resources.scorer)
        return redactor_for((lm for lm in lms if lm is not None), addresses=self.resources.addresses)

    def objective(self, target: Target) -> Objective:
        """The objective that a target is compiled against."""
        if (own := target.metric()) is not None:
            return Objective([(own, 1.0)], read_call)
        return Objective([(self.resources.metrics[m.name], m.weight) for m in self.config.against], read_call)

    def request(self, target: Target, program: Program | None, folder: Path) -> CompileRequest:
        """The request to compile a target of a program that the earlier targets have left, in a folder of its own.

        Raises:
            InputError: If the program lacks the target's module, or no example can be measured.
        """
        student, objective = target.student(program), self.objective(target)
        train, validation = (self._examples(target, objective, split) for split in ("train", "validation"))
        for metric, _ in objective.metrics:
            with self._or_metrics():
                check_measurable(metric, [*train, *validation], self.dataset)
        return CompileRequest(
            student=student,
            trainset=train,
            valset=validation,
            metric=objective,
            task_lm=self.lm,
            log_dir=folder,
            teacher_lm=self.teacher_lm,
            prompt_lm=self.prompt_lm,
            threads=self.config.threads,
            seed=self.config.seed,
            depends_on=self._identity(target),
            redact=self.redactor,
        )

    @cached_property
    def tested(self) -> list[dspy.Example]:
        """The examples of the test split that reach a target and can be measured."""
        last = self.targets[-1]
        targets = [last] if self.own_labels else self.targets
        by_id = {str(e.id): e for t in targets for e in self.objective(t).measurable(t.examples(self.dataset, "test"))}
        return list(by_id.values()) or self._examples(last, self.objective(last), "test")  # raises the error

    @cached_property
    def test_examples(self) -> list[dspy.Example]:
        """The tested examples, at most `test_limit`, drawn in turn from each subset and type."""
        examples = self.tested
        return sample(examples, self.config.test_limit or len(examples), self.config.dataset.seed, question_type_of)

    def tested_by(self, on_notice: Callable[[str], None]) -> tuple[MetricConfig, ...]:
        """The metrics of the test: those that are compiled against, and truthfulness if it can be measured."""
        metrics = self.resources.config.metrics
        return with_truthfulness(metrics, self.test_examples, self.dataset, self.resources.scorer, on_notice)

    @property
    def test_fingerprint(self) -> str:
        """A short hash of the test examples' ids, which depend on the modules that are compiled."""
        return hash_of(json.dumps(sorted(str(e.id) for e in self.test_examples)))[:16]

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that tell this compile from others, without those that each target has by itself."""
        config = self.config
        options = options_of(config.program, self.source)
        return {
            "modules": config.modules,
            **({} if self.judge else {"program": config.program.program, "options": options.model_dump(mode="json")}),
            "test seed": config.dataset.seed,
            "test limit": config.test_limit,
        }

    @property
    def reranker(self) -> str:
        """The spec of the program's reranker."""
        return reranker_of(self.config.program, self.source)

    @property
    def public_settings(self) -> dict[str, Any]:
        """The settings that are logged to MLflow."""
        config = self.config
        options = self.optimizer.settings.model_dump(mode="json")
        return {
            "program": None if self.judge else config.program.program,
            "modules": config.modules or "all",
            "targets": [target.name for target in self.targets],
            "optimizer": config.optimizer.name,
            "optimizer options": without_secrets(options),
            "metric": self.objective(self.targets[-1]).name,
            "metric options": {m.name: with_fingerprints(m.name, m.options) for m in config.against},
            "budget": {"name": config.budget.name, **self.budget.model_dump(exclude_none=True)},
            "dataset": self.dataset.name,
            "dataset fingerprint": self.dataset.fingerprint,
            "lms": self.lm_settings,
            "seed": config.seed,
            "threads": config.threads,
            "git commit": git_commit(),
        }

    @property
    def lm_settings(self) -> dict[str, dict[str, Any]]:
        """The specs and settings of the LMs, by role."""
        config = self.config
        roles: dict[str, tuple[LMConfig | None, dspy.LM | None]] = {
            "task": (config.lm, self.lm),
            "prompt": (self._like_the_task_lm(config.prompt_lm), self.prompt_lm),
            "teacher": (self._like_the_task_lm(config.teacher_lm), self.teacher_lm),
            "judge": (config.scorer, self.resources.scorer),
        }
        return {
            role: {"spec": settings.spec or default_spec(), **reply_settings(lm)}
            for role, (settings, lm) in roles.items()
            if settings is not None and lm is not None
        }

    def _like_the_task_lm(self, config: LMConfig | None) -> LMConfig | None:
        """Complete an LM's settings: without a spec, they change those of the task's LM; see also `beside`."""
        if config is None or config.spec:
            return config and config.beside(self.config.lm)
        return self.config.lm.model_copy(update=config.model_dump(exclude_unset=True, exclude_none=True))

    def _examples(self, target: Target, objective: Objective, split: str) -> list[dspy.Example]:
        examples = objective.measurable(target.examples(self.dataset, split))
        if not examples:
            columns = f" ({self.dataset.columns})" if self.dataset.columns else ""
            raise InputError(
                f"dataset '{self.dataset.name}' has no example in split '{split}' that '{target.name}' could be "
                f"measured on by {objective.name}{columns}",
                "Name another dataset, or --subset",
            )
        return examples

    def _identity(self, target: Target) -> dict[str, Any]:
        config, source = self.config, self.source
        searches = self.judge is None and source.retrieves
        return {
            "target": target.name,
            "dataset": self.dataset.name,
            "dataset fingerprint": self.dataset.fingerprint,
            "metrics": {m.name: [m.weight, with_fingerprints(m.name, m.options)] for m in config.against},
            "judge LM": self.lm_settings.get("judge"),
            **(reranker_identity(self.reranker) if self.judge is None else {}),
            **(self.resources.retriever(config.program).identity if searches else {}),
        }
