"""Check whether a compiled judge agrees better with people than its base, on labels that it was not compiled on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.errors import InputError
from typedrag.experiments.held_out import Pair, check_enough, held_out_test
from typedrag.experiments.judges.judging import judge_each
from typedrag.experiments.judges.records import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, add_check
from typedrag.metrics.judges.human_labels import HumanLabels, Judged
from typedrag.optimizers.compile.targets import JudgeTarget, judge_target
from typedrag.runs.stages import Listener, unheard


def check_saved_judge(
    folder: Path,
    datasets: Mapping[str, Dataset],
    scorer: Scorer,
    settings: CheckSettings | None = None,
    *,
    listener: Listener = unheard,
) -> JudgeCheck:
    """Check the compiled judge in a folder, and write the result into it: only checked judges can be loaded.

    The compiled judge and its base judge the same labelled examples.

    Args:
        folder: A folder that `save_judge` wrote.
        datasets: Datasets by their names; the first with labels for this judge is used.
        scorer: The LM that both judges ask.
        settings: Threads, seed and the limit of examples.
        listener: Hears of the progress.

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
    examples = test_examples(target, dataset, settings)
    check = JudgeCheck(
        scorer=scorer.lm.model,
        measure=target.metric().measure,
        base=None,
        compiled=None,
        dataset=dataset.name,
        dataset_fingerprint=dataset.fingerprint,
        judge=saved.fingerprint,
    )
    check = replace(check, tests=1 + len(saved.earlier_checks(check)))
    if settings.limit is None:
        check_test(examples, dataset, "--limit")

    def asked(which: dspy.Module, what: str) -> dict[int, dspy.Prediction]:
        judged = judge_each(
            lambda place: target.say(which, examples[place]),
            range(len(examples)),
            scorer=scorer.lm,
            threads=settings.threads,
            listener=listener,
            name=f"{dataset.name}: {what} {target.name}, {scorer.name}",
        )
        return dict(judged.judgments)

    base, compiled = asked(target.judge(), "base"), asked(saved.build(), "compiled")
    both = [place for place in base if place in compiled]
    measured = target.metric()
    by_base, by_compiled = ([(examples[place], replies[place]) for place in both] for replies in (base, compiled))
    [verdict] = held_out_test([_pair(measured, by_base, by_compiled)], programs=check.tests, seed=settings.seed)
    check = replace(
        check,
        base=measured.agreement(by_base, settings.seed),
        compiled=measured.agreement(by_compiled, settings.seed),
        difference=verdict.difference,
        p=verdict.corrected_p,
        failed=len(examples) - len(both),
    )
    add_check(folder, check)
    return check


def test_examples(target: JudgeTarget, dataset: Dataset, settings: CheckSettings) -> list[dspy.Example]:
    """The labelled examples that a judge is checked on, at most `settings.limit`, at random.

    Raises:
        InputError: If there is none.
    """
    by_lot = sorted(target.examples(dataset, "test"), key=lambda e: hash_of(e.question, settings.seed))
    if not by_lot:
        raise InputError(f"split 'test' of dataset '{dataset.name}' has no labels for '{target.name}'", "Give more")
    return by_lot[: settings.limit]


def check_test(examples: Sequence[dspy.Example], dataset: Dataset, flag: str) -> None:
    """Refuse a test on too few questions, before it is paid; the flag sets their number.

    Raises:
        InputError: If no verdict can come of it.
    """
    count = len({group_of(example) for example in examples})
    hint = f"Name a dataset with more, or test on these without a verdict: {flag} {len(examples)}"
    check_enough(count, f"split 'test' of dataset '{dataset.name}'", hint)


def _pair(labels: HumanLabels, base: Judged, compiled: Judged) -> Pair:
    """The shares of labelled items that two judges have right, the same for all items of a question."""
    counts = [labels.counts(judged) for judged in (base, compiled)]
    sides = [[right / of for right, of in side for _ in range(of)] for side in counts]
    return Pair(sides[0], sides[1], [question for question, (_, of) in enumerate(counts[0]) for _ in range(of)])
