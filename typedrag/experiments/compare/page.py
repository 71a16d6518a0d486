"""The results of runs as a page of Markdown: what a repository keeps beside the code that made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typedrag.experiments.compare.compare import (
    ALL,
    By,
    Difference,
    RunComparison,
    belongs,
    compare,
    run_labels,
    strata,
)
from typedrag.experiments.compare.losses import Cause, Loss
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.formats import format_count, format_estimate, format_p, markdown_table


@dataclass(frozen=True)
class Section:
    """The runs over one dataset.

    Attributes:
        title: Of the section.
        runs: One for each program, over the same questions.
        baseline: Position of the run that the others are compared with.
        measures: Which are shown, as `metric/measure`.
        losses: Of programs, by run label: where they lose to the baseline and why.
        about: A paragraph on the data and how it was sampled.
    """

    title: str
    runs: Sequence[Run]
    baseline: int
    measures: Sequence[str]
    losses: dict[str, list[Loss]]
    about: str


def results_page(title: str, about: Sequence[str], sections: Sequence[Section]) -> str:
    """The page: for each dataset all programs, the differences from the baseline, by type and subset, and losses."""
    lines = [f"# {title}", "", *about, ""]
    for section in sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> Iterator[str]:
    labels = run_labels(section.runs)
    comparison = compare(section.runs, baseline=section.baseline, measures=section.measures)
    yield from (f"## {section.title}", "", section.about, "")
    yield from markdown_table(
        ("program", "n", "failed", *section.measures),
        (
            (label, str(len(run.questions)), _failures(run), *(_mean(run, m) for m in section.measures))
            for label, run in zip(labels, section.runs, strict=True)
        ),
    )
    yield from (f"### Against {comparison.baseline}", "")
    yield from (
        "Difference with its 95% interval (paired bootstrap), p of the paired permutation test, p corrected for all "
        "tests of the comparison, and how many questions would show a difference like it.",
        "",
    )
    overall = [d for d in comparison.differences if d.stratum == ALL]
    yield from markdown_table(
        ("program", "measure", "n", "difference", "p", "corrected p", "needed"), map(_tested, overall)
    )
    for warning in comparison.warnings:
        yield from (f"**Beware:** {warning}.", "")
    yield from _by_stratum(section, comparison, "type")
    yield from _by_stratum(section, comparison, "subset")
    for label, found in section.losses.items():
        yield from _losses(label, comparison.baseline, found)


def _by_stratum(section: Section, comparison: RunComparison, by: By) -> Iterator[str]:
    parts = [s for s in strata(section.runs[0].questions, (by,)) if s.by == by]
    if len(parts) < 2:
        return
    labels = run_labels(section.runs)
    verdicts = {(d.run, d.measure, d.stratum): d.verdict for d in comparison.differences}
    for measure in section.measures:
        yield from (f"### {measure} by {by}", "")
        rows = []
        for part in parts:
            ids = {q.id for q in section.runs[0].questions if belongs(q, part)}
            cells = []
            for label, run in zip(labels, section.runs, strict=True):
                mean = format_estimate(run.mean(measure, ids))
                verdict = verdicts.get((label, measure, part))
                cells.append(f"{mean} **{verdict}**" if verdict else mean)
            rows.append((part.name, str(len(ids)), *cells))
        yield from markdown_table((by, "n", *labels), rows)


def _losses(label: str, baseline: str, found: list[Loss]) -> Iterator[str]:
    yield from (f"### Where {label} loses to {baseline}", "")
    yield f"{len(found)} questions were answered worse. To which steps that can be laid, by the traces:"
    yield ""
    every = Counter(cause for loss in found for cause in loss.causes)
    first = Counter(loss.causes[0] for loss in found)
    yield from markdown_table(
        ("cause", "first", "among others", "sign"),
        ((str(c), str(first[c]), str(every[c]), c.definition) for c in Cause),
    )


def _tested(d: Difference) -> tuple[str, ...]:
    verdict = f" **{d.verdict}**" if d.verdict else ""
    return (
        d.run,
        d.measure,
        str(d.n),
        format_estimate(d.difference, signed=True) + verdict,
        format_p(d.p),
        format_p(d.corrected_p),
        format_count(d.questions_needed),
    )


def _failures(run: Run) -> str:
    tally = run.tally
    judges = sum(r.score is None and r.measurable for q in run.questions for r in q.metrics.values())
    return f"{tally.failed} answers, {judges} judgments; {tally.fallbacks} fallbacks; {tally.sources}"


def _mean(run: Run, measure: str) -> str:
    return format_estimate(run.mean(measure))
