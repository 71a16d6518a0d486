"""The objects of a compile, built from its configuration."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from typedrag.core.errors import InputError
from typedrag.core.question_types import TYPE_CLASSIFIERS
from typedrag.core.redaction import Redactor, make_redactor
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.experiments import resources
from typedrag.experiments.config import LMConfig
from typedrag.experiments.question_typing import infer_type, untyped
from typedrag.experiments.resources import Resources, configured_options
from typedrag.experiments.tracking.registry import check_registration
from typedrag.lms.cost import LEDGER, Spending, track_cost
from typedrag.lms.lm import Role, check_lm, reply_settings
from typedrag.lms.replies import REPLIES
from typedrag.lms.specs import default_spec
from typedrag.metrics import metric_class, objective_risk
from typedrag.metrics.objective import Objective
from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer
from typedrag.optimizers.compile.prompt_optimizers.base import BUDGET_CALLS, CompileRequest
from typedrag.optimizers.compile.prompt_optimizers.candidates import read_call
from typedrag.optimizers.compile.prompt_optimizers.limiter import Ledger, read_spending
from typedrag.optimizers.compile.targets import JudgeTarget, Target, find_target
from typedrag.programs import Program
from typedrag.programs.compiled import without_secrets
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import reranker_identity
from typedrag.runs import Limits, Stopper

COMPILE, TYPES = "compile", "types"


class CompileResources:
    """The objects of a compile and of its test; each is built when it is first used."""

    def __init__(self, config: CompileConfig, out: Path, *, types_by_lm: bool = True) -> None:
        self.config, self._types_by_lm = config, types_by_lm
        self.resources = Resources(config.test_evaluation(config.program), config.replies or out / REPLIES)
        self._types = out / COMPILE / TYPES
        self.target: Target = find_target(config.modules)
        self.judge = isinstance(self.target, JudgeTarget)
        self.own_labels = self.target.metric is not None  # it is compiled by these instead of whole answers
        self.optimizer = build_optimizer(config.optimizer.name, config.optimizer.options, config.budget.name)
        self.limits = config.budget.lm_calls or BUDGET_CALLS[config.budget.name], config.budget.tokens
        self.risk = objective_risk(m.name for m in config.against)
        self.metric_options = {m.name: resources.with_fingerprints(m.name, m.options) for m in config.against}

    def check(self) -> None:
        """Check the configuration before anything is loaded: names, options, scorers, metrics, the registered model."""
        config, source = self.config, self.source
        source.check_unlabelled(configured_options(config.program, source), config.program.retriever)
        if config.register_as and self.judge:
            raise InputError("a judge cannot be registered, only programs can", "Leave out --register")
        check_registration(config.register_as, config.tracking)
        for role, lm in self._other_lms.items():
            check_lm(lm.spec or config.lm.spec, role)
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
            raise InputError(error.problem, f"{error.hint}{others}") from None

    @property
    def source(self) -> ProgramSource:
        return self.resources.source(self.config.program)

    @property
    def stop(self) -> Stopper:
        """Stops the compile at its limits, less what the types of questions have cost."""
        (calls, tokens), spent = self.limits, self.spent_on_types
        return Limits(max(1, tokens - spent.tokens) if tokens else None, max(1, calls - spent.usage.lm_calls))

    @cached_property
    def base(self) -> Program | None:
        return None if self.judge else self.resources.program(self.config.program)

    @cached_property
    def _read(self) -> Dataset:
        return resources.load_configured(self.config.dataset)

    @cached_property
    def types(self) -> int:
        asks = not self.own_labels and TYPE_CLASSIFIERS.parse(self.resources.type_classifier).kind == "lm"
        return len(untyped(self._read.examples)) if asks else 0

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset, with all its splits; with the question types that the program names, if it does."""
        if self.own_labels or (self.types and not self._types_by_lm):
            return self._read
        if self.types and self.types >= self.limits[0]:
            raise InputError(
                f"the LM would name the types of {self.types:,} questions, which leaves nothing of the "
                f"{self.limits[0]:,} LM calls of the budget",
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
        return read_spending(self._types / LEDGER)

    @property
    def _other_lms(self) -> dict[Role, LMConfig]:
        roles: dict[Role, LMConfig | None]
        roles = {"prompt LM": self.config.prompt_lm, "teacher LM": self.config.teacher_lm}
        return {role: lm for role, lm in roles.items() if lm is not None}

    @cached_property
    def lms(self) -> dict[str, tuple[LMConfig, dspy.LM]]:
        """The LMs by role and their settings: `task`, `judge`, and `prompt` and `teacher` where they differ."""
        task = self.resources.config.lm
        lms = {"task": (task, self.resources.lm)}
        for role, config in self._other_lms.items():
            own_settings = config.model_dump(exclude_unset=True, exclude_none=True)
            own = config.inherit_address(task) if config.spec else task.model_copy(update=own_settings)
            lms[role.removesuffix(" LM")] = own, resources.open_metered(own, role)
        if self.config.scorer is not None and self.resources.scorer is not None:
            lms["judge"] = self.config.scorer, self.resources.scorer
        return lms

    @property
    def lm_settings(self) -> dict[str, dict[str, Any]]:
        return {
            role: {"spec": settings.spec or default_spec(), **reply_settings(lm)}
            for role, (settings, lm) in self.lms.items()
        }

    @cached_property
    def redactor(self) -> Redactor:
        return make_redactor((lm for _, lm in self.lms.values()), addresses=self.resources.addresses)

    @cached_property
    def objective(self) -> Objective:
        if (own := self.target.metric) is not None:
            return Objective([(own, 1.0)], read_call)
        return Objective([(self.resources.metrics[m.name], m.weight) for m in self.config.against], read_call)

    def request(self, folder: Path) -> CompileRequest:
        student = self.target.student(self.base)
        train, validation = self.examples("train"), self.examples("validation")
        for metric, _ in self.objective.metrics:
            with self._or_metrics():
                resources.check_measurable(metric, [*train, *validation], self.dataset)
        config, others = self.config, {role: lm for role, (_, lm) in self.lms.items()}
        searched_by: Mapping[str, Any] = {}
        if not self.judge:
            searched_by = reranker_identity(resources.reranker_spec(config.program, self.source))
            if self.source.retrieves:
                searched_by = {**searched_by, **self.resources.retriever(config.program).identity}
        return CompileRequest(
            student=student,
            trainset=train,
            valset=validation,
            metric=self.objective,
            task_lm=self.resources.lm,
            log_dir=folder,
            teacher_lm=others.get("teacher"),
            prompt_lm=others.get("prompt"),
            threads=config.threads,
            seed=config.seed,
            depends_on={
                "target": self.target.name,
                "dataset": self.dataset.name,
                "dataset fingerprint": self.dataset.fingerprint,
                "metrics": {m.name: [m.weight, self.metric_options[m.name]] for m in config.against},
                "judge LM": self.lm_settings.get("judge"),
                **searched_by,
            },
            redact=self.redactor,
        )

    def examples(self, split: str) -> list[dspy.Example]:
        """The examples of a split that reach the target and can be measured."""
        of_split = self.target.test_examples if split == "test" else lambda d: self.target.examples(d, split)
        examples = self.objective.measurable(of_split(self.dataset))
        if not examples:
            columns = f" ({self.dataset.columns})" if self.dataset.columns else ""
            raise InputError(
                f"dataset '{self.dataset.name}' has no example in split '{split}' that '{self.target.name}' could be "
                f"measured on by {self.objective.name}{columns}",
                "Name another dataset, or --subset",
            )
        return examples

    @cached_property
    def test_examples(self) -> list[dspy.Example]:
        """The examples of the test, at most `test_limit`, drawn in turn from each subset and type."""
        examples = self.examples("test")
        return sample(examples, self.config.test_limit or len(examples), self.config.dataset.seed, infer_type)

    @property
    def program_options(self) -> dict[str, Any]:
        return configured_options(self.config.program, self.source).model_dump(mode="json")

    @property
    def identity(self) -> dict[str, Any]:
        config = self.config
        return {
            "modules": config.modules,
            **({} if self.judge else {"program": config.program.program, "options": self.program_options}),
            "test seed": config.dataset.seed,
            "test limit": config.test_limit,
        }

    @property
    def public_settings(self) -> dict[str, Any]:
        config, (calls, tokens) = self.config, self.limits
        return {
            "program": None if self.judge else config.program.program,
            "options": None if self.judge else self.program_options,
            "modules": config.modules or "all",
            "targets": [self.target.name],
            "optimizer": config.optimizer.name,
            "optimizer options": without_secrets(self.optimizer.model_dump(mode="json")),
            "metric": self.objective.name,
            "metric options": self.metric_options,
            "budget": {"name": config.budget.name, "lm_calls": calls, **({"tokens": tokens} if tokens else {})},
            "dataset": self.dataset.name,
            "dataset fingerprint": self.dataset.fingerprint,
            "lms": self.lm_settings,
            "seed": config.seed,
            "threads": config.threads,
            "git commit": resources.git_commit(),
        }
