"""Check all judges on all labels that there are, and the page of such a check."""

import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from typedrag.core.errors import InputError
from typedrag.datasets import Dataset
from typedrag.experiments.formats import format_estimate, markdown_table
from typedrag.experiments.judges.answers import check_answers, check_fabrications, check_preferences
from typedrag.experiments.judges.judging import Check, CheckSettings, JudgeEvalContext, JudgeReport, JudgesCheck, Scorer
from typedrag.experiments.judges.sub_questions import check_coverage, check_question_types, check_sub_question_types
from typedrag.lms.lm import lm_identity
from typedrag.runs import Listener, ignore_progress


class LabelledDataset(NamedTuple):
    """A dataset to check judges on, and its check: `files` is a glob pattern within a folder of all labels, `about`
    tells of the labels; a homeless one can only be read from a path."""

    title: str
    files: str
    about: str
    check: Callable[[JudgeEvalContext], JudgeReport]
    options: Mapping[str, str] = {}
    homeless: bool = False

    def find(self, data: Path) -> Path | None:
        return next((file.parent for file in sorted(data.glob(self.files))), None)


CHECKED: Mapping[str, LabelledDataset] = {
    "antique": LabelledDataset(
        "Answers", "linkage/[aA]*.json*",
        "ANTIQUE: people labelled answers of Yahoo! Answers from 1 (off topic) to 4 (convincing).", check_answers,
    ),
    "trec-dl-nf": LabelledDataset(
        "Answers", "linkage/[tT]*.json*",
        "TREC-DL-NF: people labelled passages from 0 (irrelevant) to 3 (perfectly relevant).", check_answers,
    ),
    "wiki-nfqa": LabelledDataset(
        "Answers", "wiki_nfqa/*.jsonl*",
        "Wiki-NFQA: GPT-4o, not people, labelled answers by several LMs from 0 to 3.", check_answers,
    ),
    "webgpt": LabelledDataset(
        "Preferences", "webgpt/comparisons.jsonl*",
        "WebGPT comparisons: people said which of two answers with references they prefer.", check_preferences,
    ),
    "fabrications": LabelledDataset(
        "Fabrications", "fabrications/*.jsonl*",
        "Right answers and fabrications of their length and manner: an LM's guesses, and the right answer with another "
        "question's gold answer in the place of its own, or with what an LM holds the likeliest wrong one.",
        check_fabrications, homeless=True,
    ),
    "sub-question-types": LabelledDataset(
        "Types of sub-questions", "sub_questions/types.jsonl*",
        "Four people called sub-questions core, background or follow-up (Xie et al. 2024).",
        check_sub_question_types, homeless=True,
    ),
    "sub-question-coverage": LabelledDataset(
        "Coverage", "sub_questions/coverage.jsonl*",
        "People said whether an answer of a search engine answers a sub-question (Xie et al. 2024).",
        check_coverage, homeless=True,
    ),
    "nf-cats": LabelledDataset(
        "Question types", "nf_cats/valid.csv*",
        "NF-CATS valid: the type of answer that a question asks for (Bolotova et al. 2022). The linear model was "
        "trained on NF-CATS train.",
        check_question_types, {"subset": "valid"},
    ),
}  # fmt: skip


def check_judges(
    datasets: Mapping[str, Dataset],
    scorers: Sequence[Scorer],
    settings: CheckSettings | None = None,
    *,
    listener: Listener = ignore_progress,
) -> JudgesCheck:
    """Check judges on the labels of these datasets, by their names in `CHECKED`.

    Without scorers, only judges that ask no LM are checked. Within `use_reply_store`, judgments are kept: repeated
    after a kill, the check pays only for missing ones.
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
        labelled, context = CHECKED[name], JudgeEvalContext(dataset, scorers, settings, listener)
        rows, paragraphs = labelled.check(context)
        about, costs = (labelled.about, *paragraphs), tuple(context.costs)
        checks.append(Check(labelled.title, about, dataset.name, dataset.fingerprint, tuple(rows), costs))
    return JudgesCheck(
        checks=tuple(checks),
        scorers={s.name: lm_identity(s.lm) for s in scorers},
        settings=settings,
        versions={"python": platform.python_version(), **{p: version(p) for p in ("typedrag", "dspy")}},
        date=datetime.now().astimezone().date().isoformat(),
    )


def judges_page(check: JudgesCheck, command: str) -> str:
    """The page of a check in Markdown, with the command line that made it."""
    scorers = []
    for name, settings in check.scorers.items():
        shown = ", ".join(f"{k} {v}" for k, v in settings.items() if k != "model" and v is not None)
        scorers.append(f"{name} ({shown})" if shown else name)
    lines = [
        "# How good are the judges?",
        "",
        f"Made by the command below on {check.date}, as it is; do not edit it.",
        "",
        "```",
        command,
        "```",
        "",
        f"LMs: {'; '.join(scorers) or 'none'}. "
        f"Versions: {', '.join(f'{name} {version}' for name, version in check.versions.items())}. "
        "In brackets are 95 % bootstrap intervals. Judgments that failed are in no measure. "
        "What is judged without an LM is the yardstick for the judges below it.",
        "",
    ]
    for part in check.checks:
        lines += (f"## {part.title}: {part.dataset}", "")
        for paragraph in part.about:
            lines += (paragraph, "")
        names = list(dict.fromkeys(name for a in part.agreements for name in a.measures))
        rows = []
        for a in part.agreements:
            figures = (format_estimate(a.measures.get(n)) for n in names)
            rows.append((a.judge, a.scorer or "none", str(a.n), str(a.failed), *figures))
        lines += markdown_table(("judge", "LM", "n", "failed", *(name.replace("_", " ") for name in names)), rows)
        for a in part.agreements:
            if table := a.confusion:
                lines += (f"Labels (rows) and what {a.judge} {a.scorer} called them (columns):".replace("  ", " "), "")
                counts = zip(table.labels, table.counts, strict=True)
                lines += markdown_table(("", *table.labels), [(label, *map(str, row)) for label, row in counts])
        if part.costs:
            lines += ("What the judges took; what was in the store of judgments already cost nothing.", "")
            header = ("judge", "LM", "judgments", "LM calls", "tokens read", "tokens written", "seconds")
            rows = []
            for cost in part.costs:
                usage = cost.spent.usage
                tokens = (f"{usage.prompt_tokens:,}", f"{usage.completion_tokens:,}")
                tokens = tokens if usage.tokens is not None else ("not told",) * 2
                calls = (f"{cost.judgments:,}", f"{usage.lm_calls:,}")
                rows.append((cost.judge, cost.scorer, *calls, *tokens, f"{cost.seconds:,.0f}"))
            lines += markdown_table(header, rows)
    return "\n".join(lines).rstrip() + "\n"
