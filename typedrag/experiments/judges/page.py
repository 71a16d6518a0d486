"""A check of judges as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typedrag.experiments.formats import format_estimate, markdown_table
from typedrag.experiments.judges.records import Agreement, Check, Cost, JudgesCheck
from typedrag.metrics.labels import ConfusionTable

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
