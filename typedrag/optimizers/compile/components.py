"""From a compile's configuration to ready objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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
from typedrag.experiments.evaluate.build import (
    Components,
    bm25_of,
    check_measurable,
    git_commit,
    open_metered,
    options_of,
    with_fingerprints,
    with_judges,
)
from typedrag.experiments.evaluate.config import LMConfig, MetricConfig
from typedrag.lms.adapter_of_each import kept
from typedrag.lms.lm import default_spec, reply_settings
from typedrag.metrics import Judgments, build_metric, metric_class, risk_of
from typedrag.metrics.objective import Objective
from typedrag.optimizers.compile.config import CompileConfig
from typedrag.optimizers.compile.roles import read_call
from typedrag.optimizers.compile.targets import IN_ORDER, JudgeTarget, Target, targets_for
from typedrag.optimizers.compile.teleprompters import Budget, CompileRequest, Optimizer, build_optimizer
from typedrag.programs import Program
from typedrag.programs.artifact.compiled import without_secrets
from typedrag.redaction import Redactor, redactor_for
from typedrag.retrieval import BM25Setting, reranker_identity

JUDGMENTS = "judgments.sqlite"


class CompileComponents:
    """What a compile is made of, each made when it is first needed.

    Args:
        config: Names everything.
        out: The folder of the compile.
    """

    def __init__(self, config: CompileConfig, out: Path) -> None:
        self.config = config
        self._judgments = config.judgments or out / JUDGMENTS
        self._parts = Components(config.test_of(config.program), self._judgments)

    def check(self) -> None:
        """Refuse what can be refused before anything is loaded.

        Raises:
            InputError: If a name or an option is unknown, what is compiled against is missing, or a judge
                is to be registered.
        """
        source = self._parts.source(self.config.program)
        source.check(options_of(self.config.program, source))
        _ = self.optimizer
        if self.config.register_as and self.judge:
            raise InputError("a judge cannot be registered, only programs can", "Leave out --register")
        if self.config.register_as and not self.config.tracking.enabled:
            raise InputError("MLflow registers programs, and is not told of the compile", "Leave out --no-tracking")
        names = [metric.name for metric in self.config.against]
        for metric in self.config.against:
            with self._or_metrics():
                metric_class(metric.name).check_scorer(self.config.scorer, **metric.options)
        if self.own_labels and names:
            raise InputError(
                f"'{self.config.modules}' is compiled by labels of its own, not against {', '.join(names)}",
                "Leave out --metric",
            )

    @contextmanager
    def _or_metrics(self) -> Iterator[None]:
        """Say what else can be done where the default of what is compiled against cannot be used."""
        try:
            yield
        except InputError as error:
            others = "" if self.config.metrics else ", or what to compile against: --metric truthfulness=1,similarity=1"
            raise InputError(error.problem, f"{error.mend}{others}") from None

    @property
    def risk(self) -> str:
        """What it risks to compile against this; empty if nothing that is known."""
        return risk_of(m.name for m in self.config.against)

    @cached_property
    def optimizer(self) -> Optimizer:
        """The teleprompter, with its options."""
        return build_optimizer(self.config.optimizer.name, self.config.optimizer.options)

    @cached_property
    def budget(self) -> Budget:
        """That of the name, but for limits that are given."""
        wanted = self.config.budget
        named = Budget.named(wanted.name)
        return Budget(lm_calls=wanted.lm_calls or named.lm_calls, tokens=wanted.tokens)

    @cached_property
    def program(self) -> Program:
        """The base."""
        return self._parts.program(self.config.program)

    @cached_property
    def targets(self) -> list[Target]:
        """What of it is compiled, one after the other."""
        spec = self.config.modules
        return targets_for(spec, self.program if spec == IN_ORDER else None)

    @property
    def judge(self) -> JudgeTarget | None:
        """The judge that is compiled, if it is one."""
        [*others, last] = self.targets
        return last if isinstance(last, JudgeTarget) and not others else None

    @property
    def own_labels(self) -> bool:
        """Whether it is compiled by labels of its own instead of whole answers."""
        return self.targets[-1].metric() is not None

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset, with all its splits; where the program names types, with those that it names."""
        found = self._parts.dataset
        if self.judge or self.own_labels:
            return found
        return replace(found, examples=tuple(self._parts.typed(found.examples)))

    @cached_property
    def lm(self) -> dspy.LM:
        """The LM that it is compiled for."""
        return self._parts.lm

    @cached_property
    def prompt_lm(self) -> dspy.LM | None:
        """The LM that writes instructions, if it is another."""
        wanted = self._like_the_task_lm(self.config.prompt_lm)
        return open_metered(wanted, "prompt LM") if wanted else None

    @cached_property
    def teacher_lm(self) -> dspy.LM | None:
        """The LM that makes demonstrations, if it is another."""
        wanted = self._like_the_task_lm(self.config.teacher_lm)
        return open_metered(wanted, "teacher LM") if wanted else None

    @cached_property
    def judgments(self) -> Judgments:
        """The store of what judges say."""
        return Judgments(self._judgments)

    @cached_property
    def redactor(self) -> Redactor:
        """Hides the keys and addresses of all LMs."""
        lms = (self.lm, self.prompt_lm, self.teacher_lm, self._parts.scorer)
        return redactor_for(lm for lm in lms if lm is not None)

    def objective(self, target: Target) -> Objective:
        """What a target is compiled against."""
        own = target.metric()
        if own is not None:
            return Objective([(own, 1.0)], read_call)
        # kept as all LMs of a compile: what cannot be read is not paid for again either, when it is resumed
        scorer = self._parts.scorer and kept(self._parts.scorer)
        weighted = [
            (
                build_metric(m.name, scorer, self.judgments, **with_judges(m.name, m.options, scorer)),
                m.weight,
            )
            for m in self.config.against
        ]
        return Objective(weighted, read_call)

    def request(self, target: Target, program: Program | None, folder: Path) -> CompileRequest:
        """What a target's compile asks for.

        Args:
            target: One of `targets`.
            program: As the targets before it have left it; None for a judge.
            folder: Of this target's compile.

        Raises:
            InputError: If the program has no such module, or no example can be measured.
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
            budget=self.config.budget.name,
            teacher_lm=self.teacher_lm,
            prompt_lm=self.prompt_lm,
            threads=self.config.threads,
            seed=self.config.seed,
            depends_on=self._identity(target),
            redact=self.redactor,
        )

    @cached_property
    def tested(self) -> list[dspy.Example]:
        """Those of the test split that reach what is compiled and can be measured."""
        last = self.targets[-1]
        targets = [last] if self.own_labels else self.targets
        found = {str(e.id): e for t in targets for e in self.objective(t).measurable(t.examples(self.dataset, "test"))}
        return list(found.values()) or self._examples(last, self.objective(last), "test")  # which says what is missing

    @cached_property
    def test_examples(self) -> list[dspy.Example]:
        """At most as many of these as are wanted, drawn in turn from each subset and type."""
        found = self.tested
        return sample(found, self.config.test_limit or len(found), self.config.dataset.seed, question_type_of)

    def tested_by(self, on_notice: Callable[[str], None]) -> tuple[MetricConfig, ...]:
        """What the test measures: what it is compiled against, and truthfulness where that can be."""
        metrics = self._parts.config.metrics
        return with_truthfulness(metrics, self.test_examples, self.dataset, self._parts.scorer, on_notice)

    @property
    def test_fingerprint(self) -> str:
        """A short hash of their ids: with some modules, only those that reach these are tested."""
        return hash_of(json.dumps(sorted(str(e.id) for e in self.test_examples)))[:16]

    @property
    def identity(self) -> dict[str, Any]:
        """Which compile it is, as far as that is not for each target by itself: what is compiled, and how tested."""
        config = self.config
        options = options_of(config.program, self._parts.source(config.program))
        return {
            "modules": config.modules,
            **({} if self.judge else {"program": config.program.program, "options": options.model_dump(mode="json")}),
            "test seed": config.dataset.seed,
            "test limit": config.test_limit,
        }

    @property
    def reranker(self) -> str:
        """The spec of the program's reranker."""
        return self.config.program.reranker or self._parts.source(self.config.program).reranker

    @property
    def retriever(self) -> str:
        """The spec of the program's retriever."""
        return self.config.program.retriever or self._parts.source(self.config.program).retriever

    @property
    def index_fingerprint(self) -> str:
        """Of the index that the program searches; empty if it searches none, and for a judge."""
        return "" if self.judge else self._parts.index_of(self.config.program)

    @property
    def bm25(self) -> dict[BM25Setting, float]:
        """The settings of the program's BM25."""
        return bm25_of(self.config.program, self._parts.source(self.config.program))

    @property
    def lm_settings(self) -> dict[str, dict[str, Any]]:
        """By role, what is to be known of the LMs."""
        config = self.config
        roles: dict[str, tuple[LMConfig | None, dspy.LM | None]] = {
            "task": (config.lm, self.lm),
            "prompt": (self._like_the_task_lm(config.prompt_lm), self.prompt_lm),
            "teacher": (self._like_the_task_lm(config.teacher_lm), self.teacher_lm),
            "judge": (config.scorer, self._parts.scorer),
        }
        return {
            role: {"spec": wanted.spec or default_spec(), **reply_settings(lm)}
            for role, (wanted, lm) in roles.items()
            if wanted is not None and lm is not None
        }

    def _like_the_task_lm(self, wanted: LMConfig | None) -> LMConfig | None:
        """Settings that name no LM are of the one that is compiled for, asked otherwise; see also `beside`."""
        if wanted is None or wanted.spec:
            return wanted and wanted.beside(self.config.lm)
        return self.config.lm.model_copy(update=wanted.model_dump(exclude_unset=True, exclude_none=True))

    def _examples(self, target: Target, objective: Objective, split: str) -> list[dspy.Example]:
        found = objective.measurable(target.examples(self.dataset, split))
        if not found:
            columns = f" ({self.dataset.columns})" if self.dataset.columns else ""
            raise InputError(
                f"dataset '{self.dataset.name}' has no example in split '{split}' that '{target.name}' could be "
                f"measured on by {objective.name}{columns}",
                "Name another dataset, or --subset",
            )
        return found

    def _identity(self, target: Target) -> dict[str, Any]:
        config, source = self.config, self._parts.source(self.config.program)
        searches = self.judge is None and source.retrieves
        return {
            "target": target.name,
            "dataset": self.dataset.name,
            "dataset fingerprint": self.dataset.fingerprint,
            "metrics": {m.name: [m.weight, with_fingerprints(m.name, m.options)] for m in config.against},
            "judge LM": self.lm_settings.get("judge"),
            **(reranker_identity(self.reranker) if self.judge is None else {}),
            **(self._parts.retriever(config.program).identity if searches else {}),
        }


def public_settings(parts: CompileComponents, targets: Sequence[str]) -> dict[str, Any]:
    """What MLflow is told of a compile's making, given the names of its targets."""
    config = parts.config
    options = parts.optimizer.settings.filled(config.budget.name).model_dump(mode="json")
    return {
        "program": None if parts.judge else config.program.program,
        "modules": config.modules or "all",
        "targets": list(targets),
        "optimizer": config.optimizer.name,
        "optimizer options": without_secrets(options),
        "metric": parts.objective(parts.targets[-1]).name,
        "metric options": {m.name: with_fingerprints(m.name, m.options) for m in config.against},
        "budget": {"name": config.budget.name, **parts.budget.model_dump(exclude_none=True)},
        "dataset": parts.dataset.name,
        "dataset fingerprint": parts.dataset.fingerprint,
        "lms": parts.lm_settings,
        "seed": config.seed,
        "threads": config.threads,
        "git commit": git_commit(),
    }
