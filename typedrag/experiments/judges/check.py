"""Check all judges on all labels that there are, and the page of such a check."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from typedrag.core.errors import InputError
from typedrag.datasets import Dataset
from typedrag.experiments.formats import format_estimate, markdown_table
from typedrag.experiments.judges.answers import check_answers, check_fabrications, check_preferences
from typedrag.experiments.judges.judging import (
    Agreement,
    Check,
    CheckSettings,
    Cost,
    JudgeEvalContext,
    JudgeReport,
    JudgesCheck,
    Scorer,
)
from typedrag.experiments.judges.sub_questions import check_coverage, check_question_types, check_sub_question_types
from typedrag.lms.lm import lm_identity
from typedrag.metrics.labels import ConfusionTable
from typedrag.runs.stages import Listener, unheard


class LabelledDataset(NamedTuple):
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
    check: Callable[[JudgeEvalContext], JudgeReport]
    options: Mapping[str, str] = {}
    homeless: bool = False

    def find(self, data: Path) -> Path | None:
        """The folder that holds its files within a folder of all labels; None if there is none."""
        return next((file.parent for file in sorted(data.glob(self.files))), None)


CHECKED: Mapping[str, LabelledDataset] = {
    "antique": LabelledDataset(
        "Answers",
        "linkage/[aA]*.json*",
        "ANTIQUE: people labelled answers of Yahoo! Answers from 1 (off topic) to 4 (convincing).",
        check_answers,
    ),
    "trec-dl-nf": LabelledDataset(
        "Answers",
        "linkage/[tT]*.json*",
        "TREC-DL-NF: people labelled passages from 0 (irrelevant) to 3 (perfectly relevant).",
        check_answers,
    ),
    "wiki-nfqa": LabelledDataset(
        "Answers",
        "wiki_nfqa/*.jsonl*",
        "Wiki-NFQA: GPT-4o, not people, labelled answers by several LMs from 0 to 3.",
        check_answers,
    ),
    "webgpt": LabelledDataset(
        "Preferences",
        "webgpt/comparisons.jsonl*",
        "WebGPT comparisons: people said which of two answers with references they prefer.",
        check_preferences,
    ),
    "fabrications": LabelledDataset(
        "Fabrications",
        "fabrications/*.jsonl*",
        "Right answers and fabrications of their length and manner: an LM's guesses, and the right answer with another "
        "question's gold answer in the place of its own, or with what an LM holds the likeliest wrong one.",
        check_fabrications,
        homeless=True,
    ),
    "sub-question-types": LabelledDataset(
        "Types of sub-questions",
        "sub_questions/types.jsonl*",
        "Four people called sub-questions core, background or follow-up (Xie et al. 2024).",
        check_sub_question_types,
        homeless=True,
    ),
    "sub-question-coverage": LabelledDataset(
        "Coverage",
        "sub_questions/coverage.jsonl*",
        "People said whether an answer of a search engine answers a sub-question (Xie et al. 2024).",
        check_coverage,
        homeless=True,
    ),
    "nf-cats": LabelledDataset(
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
    listener: Listener = unheard,
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
        checked, bench = CHECKED[name], JudgeEvalContext(dataset, scorers, settings, listener)
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


_NO_LM = "none"


def judges_page(check: JudgesCheck, command: str) -> str:
    """The page of a check, with the command line that made it."""
    lines = [
        "# How good are the judges?",
        "",
        f"Made by the command below on {check.date}, as it is; do not edit it.",
        "",
        "```",
        command,
        "```",
        "",
        f"LMs: {'; '.join(_scorer(name, settings) for name, settings in check.scorers.items()) or _NO_LM}. "
        f"Versions: {', '.join(f'{name} {version}' for name, version in check.versions.items())}. "
        "In brackets are 95 % bootstrap intervals. Judgments that failed are in no measure. "
        "What is judged without an LM is the yardstick for the judges below it.",
        "",
    ]
    for part in check.checks:
        lines += _check(part)
    return "\n".join(lines).rstrip() + "\n"


def column_names(check: Check) -> list[str]:
    """The names of all measures of a check, in the order of their first occurrence."""
    return list(dict.fromkeys(name for a in check.agreements for name in a.measures))


def _check(check: Check) -> Iterator[str]:
    yield from (f"## {check.title}: {check.dataset}", "")
    for paragraph in check.about:
        yield from (paragraph, "")
    names = column_names(check)
    yield from markdown_table(
        ("judge", "LM", "n", "failed", *(name.replace("_", " ") for name in names)),
        (_row(agreement, names) for agreement in check.agreements),
    )
    for agreement in check.agreements:
        if agreement.confusion:
            yield from _confusion(agreement, agreement.confusion)
    if check.costs:
        yield "What the judges took; what was in the store of judgments already cost nothing."
        yield ""
        yield from markdown_table(
            ("judge", "LM", "judgments", "LM calls", "tokens read", "tokens written", "seconds"),
            map(_cost, check.costs),
        )


def _row(agreement: Agreement, names: Sequence[str]) -> tuple[str, ...]:
    cells = (format_estimate(agreement.measures.get(name)) for name in names)
    return (agreement.judge, agreement.scorer or _NO_LM, str(agreement.n), str(agreement.failed), *cells)


def _confusion(agreement: Agreement, table: ConfusionTable) -> Iterator[str]:
    yield f"Labels (rows) and what {agreement.judge} {agreement.scorer} called them (columns):".replace("  ", " ")
    yield ""
    yield from markdown_table(
        ("", *table.labels),
        ((label, *map(str, row)) for label, row in zip(table.labels, table.counts, strict=True)),
    )


def _cost(cost: Cost) -> tuple[str, ...]:
    usage = cost.spent.usage
    tokens = [
        f"{n:,}" if usage.tokens is not None else "not told" for n in (usage.prompt_tokens, usage.completion_tokens)
    ]
    return (cost.judge, cost.scorer, f"{cost.judgments:,}", f"{usage.lm_calls:,}", *tokens, f"{cost.seconds:,.0f}")


def _scorer(name: str, settings: object) -> str:
    shown = ", ".join(f"{k} {v}" for k, v in dict(settings).items() if k != "model" and v is not None)  # type: ignore[call-overload]
    return f"{name} ({shown})" if shown else name
