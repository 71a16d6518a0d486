"""Evaluate the revelator in each of its roles, on rows that it was not trained on (HANRAG, appendix D)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.errors import InputError
from typedrag.metrics import Estimate, mean_estimate
from typedrag.metrics.labels import ConfusionTable, LabelMatch, confusion
from typedrag.metrics.metric import Metric, Scored
from typedrag.optimizers.compile.targets.revelator import metric_of, typed_example
from typedrag.programs import HANRAG
from typedrag.question_types import RevelatorRole
from typedrag.runs.stages import Failed, Listener, Stages, unheard


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

    def judge(row: tuple[RevelatorRole, dspy.Example]) -> Scored:
        role, example = row
        return metrics[role].score(example, modules[role](**example.inputs()))

    scored = Stages(threads, listener=listener).run("rows", judge, rows)
    return [
        _of_role(role, [(e, s) for (r, e), s in zip(rows, scored, strict=True) if r is role], metrics[role])
        for role in roles
        if any(r is role for r, _ in rows)
    ]


def _of_role(role: RevelatorRole, scored: Sequence[tuple[dspy.Example, Scored | Failed]], metric: Metric) -> RoleScore:
    values = [0.0 if isinstance(s, Failed) else s.score for _, s in scored]
    read = [s for _, s in scored if not isinstance(s, Failed)]
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
