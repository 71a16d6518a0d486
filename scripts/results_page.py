"""The results of runs as a page of Markdown, and a program's losses to a baseline, explained by its steps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.experiments.compare import (
    ALL,
    By,
    Difference,
    RunComparison,
    belongs,
    compare,
    run_labels,
    strata,
)
from typedrag.experiments.formats import format_count, format_estimate, format_p, markdown_table
from typedrag.experiments.results import Run, higher_is_better
from typedrag.metrics.similarity import rouge_scorer
from typedrag.text.words import folded


class Cause(StrEnum):
    """A cause of an answer that is worse than the baseline's, in the order of a program's steps."""

    WRONG_TYPE = "wrong type"
    DRIFT = "sub-queries drift"
    NO_ANSWER = "passages do not hold the answer"
    LOST = "the aggregation loses what sub-answers had"
    WORSE_ANSWER = "a worse answer from passages as good"

    @property
    def definition(self) -> str:
        """The signs in a trace by which a loss is assigned to this cause."""
        return _DEFINITIONS[self]


_DEFINITIONS = {
    Cause.WRONG_TYPE: "the program answered by another type than the one the question was labelled with by hand",
    Cause.DRIFT: "fewer of the passages that it answered from hold an answer than of the baseline's",
    Cause.NO_ANSWER: "no passage that either answered from holds an answer",
    Cause.LOST: "a sub-answer shares more of the best reference than the answer that was made of all sub-answers",
    Cause.WORSE_ANSWER: "none of the others: as many passages hold an answer, and nothing was lost in combining",
}


@dataclass(frozen=True)
class Loss:
    """A question that a program answered worse than the baseline.

    Attributes:
        id: The question's id.
        question: As asked.
        question_type: The type by which the program answered.
        loss: The amount by which it is worse, in the units of the measure.
        causes: All that apply, in the order of the program's steps; the first is also first in
            the program, so that the others may follow from it.
    """

    id: str
    question: str
    question_type: QuestionType | None
    loss: float
    causes: tuple[Cause, ...]


def losses(
    run: Run,
    baseline: Run,
    examples: Mapping[str, dspy.Example],
    *,
    measure: str,
    labels: Mapping[str, QuestionType] | None = None,
) -> list[Loss]:
    """The questions that a run answered worse than a baseline, worst first, each with its causes.

    A passage counts as holding an answer if the dataset labels it so, or if it contains one of the
    short gold answers.

    Args:
        run: The program's run.
        baseline: The baseline's run, over the same questions.
        examples: The dataset's examples, by id.
        measure: Written as `metric/measure`.
        labels: Question types given by hand, by question id, if there are any.
    """
    sign = 1 if higher_is_better(measure) else -1
    ours, theirs = run.values(measure), baseline.values(measure)
    questions = {q.id: q for q in baseline.questions}
    worse = []
    for question in run.questions:
        if question.id not in ours or question.id not in theirs:
            continue
        loss = sign * (theirs[question.id] - ours[question.id])
        rival = questions[question.id]
        if loss > 0 and question.answer and rival.answer:
            causes = _causes(question.answer, rival.answer, examples[question.id], (labels or {}).get(question.id))
            worse.append(Loss(question.id, question.question, question.answer.question_type, loss, causes))
    return sorted(worse, key=lambda answer: -answer.loss)


def holding(answer: Answer, example: dspy.Example) -> set[str]:
    """The ids of the passages that an answer was written from and that hold an answer."""
    labelled = set(example.get("passage_ids") or ())
    golds = [folded(gold) for gold in example.get("answers") or () if gold.strip()]
    return {p.id for p in answer.passages if p.id in labelled or any(g in folded(f"{p.title} {p.text}") for g in golds)}


def sub_answers(answer: Answer) -> list[str]:
    """The answers to the sub-queries of a program that answers them one by one."""
    return [step.output for s in answer.steps for step in s.walk() if step.name == "sub-query" and step.output]


def _causes(answer: Answer, rival: Answer, example: dspy.Example, label: QuestionType | None) -> tuple[Cause, ...]:
    ours, theirs = holding(answer, example), holding(rival, example)
    applies = {
        Cause.WRONG_TYPE: label is not None and answer.question_type != label,
        Cause.DRIFT: len(ours) < len(theirs),
        Cause.NO_ANSWER: not ours and not theirs,
        Cause.LOST: _lost(answer, example),
    }
    return tuple(cause for cause, does in applies.items() if does) or (Cause.WORSE_ANSWER,)


def _lost(answer: Answer, example: dspy.Example) -> bool:
    references = list(example.get("references") or ())
    parts = sub_answers(answer)
    if not references or not parts:
        return False
    best = references[0].text
    return _best_recall(parts, best) > _best_recall([answer.answer], best)


def _best_recall(texts: Sequence[str], reference: str) -> float:
    scorer = rouge_scorer(("rouge1",), stemmer=True)
    return max(scorer.score(reference, text)["rouge1"].recall for text in texts)


@dataclass(frozen=True)
class Section:
    """The runs over one dataset.

    Attributes:
        title: The title of the section.
        runs: One for each program, over the same questions.
        baseline: Position of the run that the others are compared with.
        measures: The measures to show, as `metric/measure`.
        losses: The losses of programs to the baseline, with causes, by run label.
        about: A paragraph on the data and how it was sampled.
        steps: For each step of a program, the run without it and the one with it.
    """

    title: str
    runs: Sequence[Run]
    baseline: int
    measures: Sequence[str]
    losses: dict[str, list[Loss]]
    about: str
    steps: Mapping[str, tuple[Run, Run]] = field(default_factory=dict)


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
            (label, str(len(run.questions)), _failures(run), *(format_estimate(run.mean(m)) for m in section.measures))
            for label, run in zip(labels, section.runs, strict=True)
        ),
    )
    if section.steps:
        yield from ("### What each step adds", "")
        yield from ("The program with the step, less the one without it: mean difference with its 95% interval.", "")
        rows = [(step, *_gain(without, with_, section.measures)) for step, (without, with_) in section.steps.items()]
        yield from markdown_table(("step", "with it", "without it", *section.measures), rows)
    yield from (f"### Against {comparison.baseline}", "")
    yield from (
        "Difference with its 95% interval (paired bootstrap), p of the paired permutation test, p corrected for all "
        "tests of the comparison, and how many questions would show a difference like it. An answer that failed counts "
        "as a wrong one.",
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
    for label, worse in section.losses.items():
        yield from _losses(label, comparison.baseline, worse)


def _gain(without: Run, with_: Run, measures: Sequence[str]) -> tuple[str, ...]:
    measured = [m for m in measures if without.values(m) and with_.values(m)]
    gains = compare([without, with_], measures=measured).differences
    by_measure = {d.measure: format_estimate(d.difference, signed=True) for d in gains if d.stratum == ALL}
    return (with_.name, without.name, *(by_measure.get(measure, "-") for measure in measures))


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


def _losses(label: str, baseline: str, worse: list[Loss]) -> Iterator[str]:
    yield from (f"### Where {label} loses to {baseline}", "")
    yield f"{len(worse)} questions were answered worse. To which steps that can be laid, by the traces:"
    yield ""
    every = Counter(cause for loss in worse for cause in loss.causes)
    first = Counter(loss.causes[0] for loss in worse)
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
