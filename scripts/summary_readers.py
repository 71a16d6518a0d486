"""The part of its full tables that each results page shows: the panels of its chart, and the rows of its table."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from charts import Panel
from tables import Table, estimate, read_tables, table_of

from typedrag.core.records import Estimate
from typedrag.experiments.held_out import SCORE, TRUTH

MRR, CORE, COSINE, TOKENS, CALLS = (
    "linkage/mrr", "coverage/core", "similarity/reference", "cost/tokens", "cost/lm_calls",
)  # fmt: skip
NUGGETS, AT_HAND, NDCG = "nuggets/weighted", "nuggets/passage_weighted", "retrieval/ndcg"
MEASURES = {
    NUGGETS: "nuggets that the answer says",
    AT_HAND: "nuggets that its passages say",
    NDCG: "nDCG of the passages",
    SCORE: "the score that was compiled against",
    TRUTH: "truthfulness",
    MRR: "LINKAGE's MRR",
    "linkage/expected_rank": "LINKAGE's expected rank",
    CORE: "core coverage",
    COSINE: "cosine with the best reference",
    TOKENS: "tokens",
    CALLS: "LM calls",
}
DATASETS = {"wiki-nfqa": "Wiki-NFQA", "antique": "ANTIQUE"}
SYSTEMS = ("results-systems", "results-systems-wiki-nfqa")
Reading = Callable[[str], str]
"""The text of a page's full tables, by the page's name."""


@dataclass(frozen=True)
class Summary:
    """The part of its full tables that a page shows.

    Attributes:
        panels: Of its chart.
        header: The columns of its table.
        rows: Of its table, ten at most, cells as the full tables have them.
    """

    panels: Sequence[Panel]
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def programs(reading: Reading, page: str) -> Summary:
    """Programs beside a baseline: their differences from it, and the means of all."""
    sections = [t for t in read_tables(reading(page)) if t.header[0] == "program" and "failed" in t.header]
    panels = []
    for means in sections:
        against = _against(reading(page), means.headings[1])
        baseline = against.headings[-1].removeprefix("Against ")
        names = [row[0] for row in means.rows if row[0] != baseline]
        for measure in (m for m in (TRUTH, MRR, COSINE) if m in means.header):
            dots = {name: dot for name in names for dot in _difference(against, name, measure)}
            panels.append(Panel(f"{_dataset(means)}: {MEASURES[measure]}, less that of {baseline}", dots))
    return Summary(panels, *_means(sections, (TRUTH, MRR, CORE, COSINE, TOKENS, CALLS)))


def steps(reading: Reading, page: str) -> Summary:
    """The gain of each step of a program: of passages by people's labels, of answers by nuggets, support and labels."""
    tables = read_tables(reading(page))
    panels = [
        Panel(f"{_dataset(gains)}: {MEASURES[m]}, with the step less without", dict(_intervals(gains, m)))
        for gains in tables
        if gains.header[0] == "step"
        for m in (NDCG, AT_HAND, TRUTH, NUGGETS)
        if m in gains.header
    ]
    means = [t for t in tables if t.header[0] == "program" and "failed" in t.header]
    return Summary(panels, *_means(means, (NDCG, NUGGETS, TRUTH, COSINE, TOKENS, CALLS)))


def compiled(reading: Reading, page: str) -> Summary:
    """Programs before and after their compile: its gain, and the means of all."""
    text = reading(page)
    sections = [t for t in read_tables(text) if "failed" in t.header]
    panels = []
    for means in sections:
        section = text.split(f"## {means.headings[1]}\n", 1)[1]
        gains = re.findall(rf"(\w+), compiled less base: {MRR} ([^,]+, [^,]+),", section.split("\n|", 1)[0])
        dots = {f"{name}: compiled less base": estimate(gain) for name, gain in gains}
        for dot in _difference(_against(text, means.headings[1]), "typed_rag, compiled", MRR):
            dots["compiled: typed_rag less rag"] = dot
        panels.append(Panel(f"{_dataset(means)}: {MEASURES[MRR]}, difference", dots))
    return Summary(panels, *_means(sections, (TRUTH, MRR, "linkage/expected_rank", COSINE, TOKENS, CALLS)))


def optimizers(reading: Reading, page: str) -> Summary:
    """Optimizers: the gain of the compiled program over its base on the test split."""
    [table] = read_tables(reading(page))
    panels = [
        Panel(f"{MEASURES[m]}, compiled less base", dict(_intervals(table, f"test: {m}")))
        for m in (SCORE, TRUTH, MRR)
        if f"test: {m}" in table.header
    ]
    return Summary(panels, table.header, table.rows)


def judges(reading: Reading, page: str) -> Summary:
    """Judges: the share of pairs that they order as the labels do, beside baselines without an LM."""
    text = reading(page)
    panels = [
        Panel(f"{name}: pairs ordered as the labels do", dict(_intervals(_judged(text, key), "pairs ordered")), 0.5)
        for key, name in (("antique", "ANTIQUE"), ("wiki-nfqa", "Wiki-NFQA"))
    ]
    best, expected = "similarity to the best reference", "LINKAGE, worst rank n + 1, expected rank"
    pairwise, cosine = "pairwise, both orders", "similarity to the answer"
    compared = (
        ("antique", "pairs ordered", best, expected),
        ("antique", "pairs ordered", best, pairwise),
        ("wiki-nfqa", "pairs ordered", best, expected),
        ("wiki-nfqa", "pairs ordered", best, pairwise),
        ("sub-question-types", "accuracy", "always core", "few-shot"),
        ("sub-question-coverage", "accuracy", "never covered", "coverage, citing words"),
        ("sub-question-coverage", "ordered", cosine, "coverage, citing words"),
        ("sub-question-coverage", "ordered", cosine, "coverage, citing sentences"),
        ("nf-cats", "accuracy", "linear, the LM's questions", "LM"),
    )
    rows = []
    for key, measure, without, judge in compared:
        table = _judged(text, key)
        name = table.headings[-1].split(":")[0]
        name = f"{name} ({DATASETS[key]})" if key in DATASETS else name
        rows.append((name, measure, without, table.cell(measure, without), judge, table.cell(measure, judge)))
    return Summary(panels, ("judged", "measure", "without an LM", "", "the LM's judge", ""), rows)


def fabrications(reading: Reading, page: str) -> Summary:
    """Judges: the share of right answers that they put above a fabrication."""
    table = _judged(reading(page), "fabrications")
    panels = [
        Panel(f"Right answers put above {what}", dict(_intervals(table, column)), 0.5)
        for column, what in (("fabricated", "fabrications of all kinds"), ("guessed", "an LM's guesses"))
    ]
    shown = (
        "similarity to the best reference", "BERTScore", "LINKAGE, combined", "truthfulness, by support",
        "LINKAGE, worst rank n, expected rank", "LINKAGE, worst rank n + 1, single rank", "relevance", "correctness",
        "coverage, core", "pairwise, both orders, the likelier",
    )  # fmt: skip
    columns = ("judge", "fabricated", "guessed", "exchanged", "falsified", "off-subject")
    return Summary(panels, columns, [[table.cell(column, judge) for column in columns] for judge in shown])


def sweep(reading: Reading, page: str) -> Summary:
    """The best trial of a sweep: its gain where it was chosen, and on questions that no trial has seen."""
    table = table_of(reading(page), "The best, measured again")
    where = {"where it was chosen": "gain where it was chosen", "on other questions": "gain"}
    panels = [
        Panel(
            f"{MEASURES[m]}: best trial less program as it was",
            {k: table.estimate(c, m) for k, c in where.items()},
            less_is_better=m == TOKENS,
        )
        for m in (MRR, TOKENS)
    ]
    return Summary(panels, ("measure", *table.header[1:]), table.rows)


def gate(reading: Reading, page: str) -> Summary:
    """The gate: its effect on truthfulness."""
    text = reading(page)
    tables = [t for t in read_tables(text) if "truthfulness" in t.header]
    question_sets = ("Wiki-NFQA, 48", "Wiki-NFQA, 32", "ANTIQUE, 16")
    panels, rows = [], []
    for questions, table in zip(question_sets, tables, strict=True):
        dots: dict[str, Estimate] = {}
        for label, dot in _intervals(table, "truthfulness"):
            of = label.replace("difference", "gated rag over rag").replace("the same", next(reversed(dots), ""))
            dots[of] = dot
        panels.append(Panel(f"{questions} questions: truthfulness, difference", dots))
        means = (row for row in table.rows if "[" not in row[1])
        rows += [(questions, row[0], row[1], row[-1]) for row in means]
    return Summary(panels, ("questions of", "program", "truthfulness", "tokens"), rows)


def type_classifiers(reading: Reading, page: str) -> Summary:
    """Type classifiers: macro-F1 over all questions, and accuracy."""
    large, small, eight_bits = read_tables(reading(page))
    dots = dict(_intervals(small, "macro-F1"))
    dots |= {f"{make}, 8 bits": dot for make, dot in _intervals(eight_bits, "macro-F1")}
    panels = [
        Panel("NF-CATS valid, 1,918 questions: macro-F1", dict(_intervals(large, "macro-F1")), None),
        Panel("300 of them: macro-F1", dots, None),
    ]
    columns = ("make", "all: accuracy", "macro-F1", "by people: accuracy")
    rows = [
        (n, *(table.cell(column, row[0]) for column in columns))
        for n, table, skipped in (("1,918", large, ""), ("300", small, ""), ("300, LM in 8 bits", eight_bits, "`lm`"))
        for row in table.rows
        if row[0] != skipped
    ]
    return Summary(panels, ("questions", *columns), rows)


def system(
    *names: str, pages: Sequence[str] = SYSTEMS, measures: Sequence[str] = (MRR, COSINE)
) -> Callable[[Reading, str], Summary]:
    """A reader of some programs alone, out of the tables of several, beside the baseline."""

    def read(reading: Reading, page: str) -> Summary:
        dots: dict[str, dict[str, Estimate]] = {measure: {} for measure in measures}
        sections, baseline = [], ""
        for text in map(reading, pages):
            for means in (t for t in read_tables(text) if "failed" in t.header):
                against = _against(text, means.headings[1])
                baseline = against.headings[-1].removeprefix("Against ")
                for (measure, known), name in product(dots.items(), names):
                    label = f"{_dataset(means)}: {name}" if len(names) > 1 else _dataset(means)
                    known.update((label, dot) for dot in _difference(against, name, measure))
                rows = tuple(row for row in means.rows if row[0] in (baseline, *names))
                sections.append(Table(means.headings, means.header, rows))
        whose = "" if len(names) > 1 else f"{names[0]}: "
        panels = [Panel(f"{whose}{MEASURES[m]}, less that of {baseline}", known) for m, known in dots.items()]
        return Summary(panels, *_means(sections, (*measures, CORE, TOKENS, CALLS)))

    return read


def coverage(reading: Reading, page: str) -> Summary:
    """Coverage-retrieval beside RAG, and a round of coverage beside none."""
    summary = system("coverage-retrieval")(reading, page)
    text = reading(page)
    rounds = [t for t in read_tables(text) if t.header[0] == "type"]
    core = re.findall(r"[Cc]ore coverage(?: is up by|,) (\S+\s\[[^\]]+\])", text)
    columns = {"LINKAGE's MRR": "difference", "cosine": "cosine with the best reference, difference"}
    names = ("Wiki-NFQA", "ANTIQUE")
    panels = [
        *summary.panels,
        *(
            Panel(f"typed_rag with a round less without: {what}",
                  {name: table.estimate(column, "all") for name, table in zip(names, rounds, strict=True)})
            for what, column in columns.items()
        ),
        Panel("typed_rag with a round less without: core coverage", dict(zip(names, map(estimate, core), strict=True))),
    ]  # fmt: skip
    return Summary(panels, summary.header, summary.rows)


PAGES: Mapping[str, tuple[Callable[[Reading, str], Summary], Sequence[str]]] = {
    "results": (steps, ("results", "typed-rag")),
    "results-systems": (programs, ("results-systems",)),
    "results-systems-wiki-nfqa": (programs, ("results-systems-wiki-nfqa",)),
    "compiled": (compiled, ("compiled", "compiling")),
    "optimizers": (optimizers, ("optimizers", "compiling")),
    "judges": (judges, ("judges",)),
    "judges-fabrications": (fabrications, ("judges-fabrications",)),
    "relevance": (gate, ("relevance", "results")),
    "sweeps": (sweep, ("sweeps",)),
    "type-classifiers": (type_classifiers, ("type-classifiers", "type-classifiers-everyday")),
    "systems/typed-rag": (
        system("typed-rag", "typed-rag-gated", "typed-rag-checked", pages=("results",), measures=(NUGGETS, COSINE)),
        ("typed-rag", "results"),
    ),
    "systems/hanrag": (system("hanrag"), ("hanrag", *SYSTEMS)),
    "systems/preqrag": (system("preqrag"), ("preqrag", *SYSTEMS)),
    "systems/richrag": (system("richrag"), ("richrag", *SYSTEMS)),
    "systems/sub-question-coverage": (coverage, ("sub-question-coverage", *SYSTEMS)),
}
"""How each page is read, and the full tables that it links to, its own first."""


def _means(sections: Sequence[Table], measures: Sequence[str]) -> tuple[list[str], list[tuple[str, ...]]]:
    shown = [m for m in measures if any(m in table.header for table in sections)]
    rows = [
        (_dataset(table), row[0], row[1], *(table.cell(m, row[0]) if m in table.header else "-" for m in shown))
        for table in sections
        for row in table.rows
    ]
    return ["questions of", "program", "n", *(MEASURES[m] for m in shown)], rows


def _against(page: str, section: str) -> Table:
    return next(t for t in read_tables(page) if section in t.headings and "difference" in t.header)


def _difference(against: Table, program: str, measure: str) -> Iterator[Estimate]:
    for row in against.rows:
        if row[:2] == (program, measure) and "[" in row[3]:
            yield estimate(row[3])


def _dataset(table: Table) -> str:
    return next(name for key, name in DATASETS.items() if key in table.headings[1])


def _judged(page: str, key: str) -> Table:
    return next(t for t in read_tables(page) if t.headings[-1].endswith(f": {key}") and t.header[0] == "judge")


def _intervals(table: Table, column: str) -> Iterator[tuple[str, Estimate]]:
    at = table.header.index(column)
    for row in table.rows:
        if "[" in row[at]:
            yield row[0].replace("`", ""), estimate(row[at])
