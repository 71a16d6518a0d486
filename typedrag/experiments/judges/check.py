"""Check all judges on all labels that there are."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from typedrag.core.errors import InputError
from typedrag.datasets import Dataset
from typedrag.experiments.judges.answers import check_answers, check_preferences
from typedrag.experiments.judges.fabrications import check_fabrications
from typedrag.experiments.judges.question_types import check_question_types
from typedrag.experiments.judges.records import Bench, Check, CheckSettings, Found, JudgesCheck, Scorer
from typedrag.experiments.judges.sub_questions import check_coverage, check_sub_question_types
from typedrag.lms.lm import lm_identity
from typedrag.runs.work import Listener, ignore_progress


class Checked(NamedTuple):
    """A dataset to check judges on, and its check.

    Attributes:
        title: The title of the check.
        files: A glob pattern of its files within a folder of all labels.
        about: A description of its labels.
        check: The function that checks the judges.
        options: Options of its loader.
        homeless: True if it can only be read from a path.
    """

    title: str
    files: str
    about: str
    check: Callable[[Bench], Found]
    options: Mapping[str, str] = {}
    homeless: bool = False

    def find(self, data: Path) -> Path | None:
        """The folder that holds its files within a folder of all labels; None if there is none."""
        return next((file.parent for file in sorted(data.glob(self.files))), None)


CHECKED: Mapping[str, Checked] = {
    "antique": Checked(
        "Answers",
        "linkage/[aA]*.json*",
        "ANTIQUE: people labelled answers of Yahoo! Answers from 1 (off topic) to 4 (convincing).",
        check_answers,
    ),
    "trec-dl-nf": Checked(
        "Answers",
        "linkage/[tT]*.json*",
        "TREC-DL-NF: people labelled passages from 0 (irrelevant) to 3 (perfectly relevant).",
        check_answers,
    ),
    "wiki-nfqa": Checked(
        "Answers",
        "wiki_nfqa/*.jsonl*",
        "Wiki-NFQA: GPT-4o, not people, labelled answers by several LMs from 0 to 3.",
        check_answers,
    ),
    "webgpt": Checked(
        "Preferences",
        "webgpt/comparisons.jsonl*",
        "WebGPT comparisons: people said which of two answers with references they prefer.",
        check_preferences,
    ),
    "fabrications": Checked(
        "Fabrications",
        "fabrications/*.jsonl*",
        "Right answers and fabrications of their length and manner: an LM's guesses, and the right answer with another "
        "question's gold answer in the place of its own, or with what an LM holds the likeliest wrong one.",
        check_fabrications,
        homeless=True,
    ),
    "sub-question-types": Checked(
        "Types of sub-questions",
        "sub_questions/types.jsonl*",
        "Four people called sub-questions core, background or follow-up (Xie et al. 2024).",
        check_sub_question_types,
        homeless=True,
    ),
    "sub-question-coverage": Checked(
        "Coverage",
        "sub_questions/coverage.jsonl*",
        "People said whether an answer of a search engine answers a sub-question (Xie et al. 2024).",
        check_coverage,
        homeless=True,
    ),
    "nf-cats": Checked(
        "Question types",
        "nf_cats/valid.csv*",
        "NF-CATS valid: the type of answer that a question asks for (Bolotova et al. 2022). The linear model was "
        "trained on NF-CATS train.",
        check_question_types,
        {"subset": "valid"},
    ),
}
"""The datasets that judges can be checked on."""


def check_judges(
    datasets: Mapping[str, Dataset],
    scorers: Sequence[Scorer],
    settings: CheckSettings | None = None,
    *,
    listener: Listener = ignore_progress,
) -> JudgesCheck:
    """Check judges on the labels of all these datasets.

    Within `use_reply_store`, judgments are kept: repeated after a kill, the check pays only for missing ones.

    Args:
        datasets: Datasets by their names, which are among `CHECKED`.
        scorers: The LMs that the judges ask; without one, only judges that need none are checked.
        settings: The settings of the check.
    """
    if unknown := [name for name in datasets if name not in CHECKED]:
        raise InputError(
            f"dataset '{unknown[0]}' has no labels to check judges by", f"Those with: {', '.join(CHECKED)}"
        )
    if len({s.name for s in scorers}) < len(scorers):
        raise InputError("a scorer is named twice", "Name each scorer once")
    settings = settings or CheckSettings()
    checks = []
    for name, dataset in datasets.items():
        checked, bench = CHECKED[name], Bench(dataset, scorers, settings, listener)
        result = checked.check(bench)
        rows, about = tuple(result.agreements), (checked.about, *result.paragraphs)
        checks.append(Check(checked.title, about, dataset.name, dataset.fingerprint, rows, tuple(bench.costs)))
    return JudgesCheck(
        checks=tuple(checks),
        scorers={s.name: lm_identity(s.lm) for s in scorers},
        settings=settings,
        versions={"python": platform.python_version(), **{p: version(p) for p in ("typedrag", "dspy")}},
        date=datetime.now().astimezone().date().isoformat(),
    )
