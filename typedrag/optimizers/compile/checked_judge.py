"""Check whether a compiled judge agrees better with people than its base, on labels that it was not compiled on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.errors import InputError
from typedrag.experiments.judges.judging import Stage, judge_each, unseen
from typedrag.experiments.judges.records import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, add_check
from typedrag.metrics.judges.judgments import Judgments
from typedrag.optimizers.compile.targets import judge_target


def check_saved_judge(
    folder: Path,
    datasets: Mapping[str, Dataset],
    scorer: Scorer,
    judgments: Judgments,
    settings: CheckSettings | None = None,
    *,
    stage: Stage = unseen,
) -> JudgeCheck:
    """Check the compiled judge in a folder, and write the result into it: only checked judges can be loaded.

    The compiled judge and its base judge the same labelled examples.

    Args:
        folder: A folder that `save_judge` wrote.
        datasets: Datasets by their names; the first with labels for this judge is used.
        scorer: The LM that both judges ask.
        judgments: The store of their judgments.
        settings: Threads, seed and the limit of examples.
        stage: Shows progress.

    Raises:
        InputError: If the folder holds no compiled judge, or no dataset has labels for it in its test split.
        LMUnavailable: If the LM cannot be used; finished judgments are kept.
    """
    saved = SavedJudge.read(folder)
    target = judge_target(saved.judge, saved.options)
    dataset = next((datasets[name] for name in target.datasets if name in datasets), None)
    if dataset is None:
        raise InputError(
            f"no labels are given for the {saved.judge} in {folder}", f"Give {' or '.join(target.datasets)}"
        )
    settings = settings or CheckSettings()
    by_lot = sorted(target.examples(dataset, "test"), key=lambda e: hash_of(e.question, settings.seed))
    examples = by_lot[: settings.limit]
    if not examples:
        raise InputError(f"split 'test' of dataset '{dataset.name}' has no labels for '{target.name}'", "Give more")

    def asked(which: dspy.Module, what: str) -> dict[int, dspy.Prediction]:
        judged = judge_each(
            lambda place: target.say(which, judgments, examples[place]),
            range(len(examples)),
            scorer=scorer.lm,
            threads=settings.threads,
            stage=stage,
            name=f"{dataset.name}: {what} {target.name}, {scorer.name}",
        )
        return dict(judged.judgments)

    base, compiled = asked(target.judge(), "base"), asked(saved.build(), "compiled")
    both = [place for place in base if place in compiled]
    measured = target.metric()
    by_base, by_compiled = ([(examples[place], replies[place]) for place in both] for replies in (base, compiled))
    check = JudgeCheck(
        scorer=scorer.lm.model,
        measure=measured.measure,
        base=measured.agreement(by_base, settings.seed),
        compiled=measured.agreement(by_compiled, settings.seed),
        difference=measured.gain(by_compiled, by_base, settings.seed),
        dataset=dataset.name,
        dataset_fingerprint=dataset.fingerprint,
        split="test",
        failed=len(examples) - len(both),
    )
    add_check(folder, check)
    return check
