"""Check whether a compiled judge agrees better with people than its base, on labels that it was not compiled on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from typedrag.core.errors import InputError
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.experiments.judges.judging import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, add_check
from typedrag.experiments.question_typing import infer_type
from typedrag.optimizers.compile.held_out import HeldOut, check_test, held_out_alone
from typedrag.optimizers.compile.targets import JUDGES
from typedrag.runs.stages import Listener, unheard


def check_saved_judge(
    folder: Path,
    datasets: Mapping[str, Dataset],
    scorer: Scorer,
    settings: CheckSettings | None = None,
    *,
    listener: Listener = unheard,
) -> JudgeCheck:
    """Test the compiled judge in a folder with an LM, and write the result into it; see `load_judge`.

    Args:
        folder: A folder that `save_judge` wrote.
        datasets: Datasets by their names; the first with labels for this judge is used.
        scorer: The LM that the judge and its base ask.
        settings: Threads, seed and the limit of questions.
        listener: Hears of the progress.
    """
    saved, settings = SavedJudge.read(folder), settings or CheckSettings()
    target = JUDGES[saved.judge](**saved.options)
    dataset = next((datasets[name] for name in target.datasets if name in datasets), None)
    if dataset is None:
        problem = f"no labels are given for the {saved.judge} in {folder}"
        raise InputError(problem, f"Give {' or '.join(target.datasets)}")
    examples = target.test_examples(dataset)
    if settings.limit is None:
        check_test(examples, dataset, "--limit")
    with TemporaryDirectory() as runs:
        test = held_out_alone(
            target,
            target.student(),
            saved.build(),
            sample(examples, settings.limit or len(examples), settings.seed, infer_type),
            Path(runs),
            lm=scorer.lm,
            threads=settings.threads,
            seed=settings.seed,
            tests=saved.count_tests(scorer.lm.model, dataset),
            listener=lambda p: listener(replace(p, run=f"{p.run.partition('-')[0]} {target.name}, {scorer.name}")),
        )
    return keep_check(folder, test, scorer.lm.model, dataset)


def keep_check(folder: Path, test: HeldOut, scorer: str, dataset: Dataset) -> JudgeCheck:
    """Write the test of the judge in a folder with a model into the folder."""
    check = JudgeCheck(
        scorer=scorer,
        judge=SavedJudge.read(folder).fingerprint,
        dataset=dataset.name,
        dataset_fingerprint=dataset.fingerprint,
        base=test.base.get("objective/score"),
        compiled=test.compiled.get("objective/score"),
        difference=test.overall.difference if test.overall else None,
        verdict=test.verdict,
        p=test.p,
        tests=test.tests,
    )
    return add_check(folder, check)
