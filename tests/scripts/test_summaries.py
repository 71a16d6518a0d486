import re
import shutil
from pathlib import Path

import pytest
from charts import BEYOND, WITHIN, Panel, described, draw
from summaries import BEGIN, END, FULL, summarize, write_full
from summary_readers import PAGES
from tables import estimate, read_tables, table_of

from scripts.results_page import Section, results_page
from tests.experiments.runs import question, run, run_of
from typedrag.core.records import Estimate

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """# One

## First

| program | n | mrr |
|---|---|---|
| rag | 3 | 0.5 [0.4, 0.6] |
| a\\|b | 3 | 1,250 [1,205, 1,297] **worse** |

### Deeper

| cause | first |
|---|---|
| drift | 2 |

## Second

| program | mrr |
|---|---|
| rag | −0.1 [−0.2, +0.1] |
"""


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text("utf-8")


def told(page: str) -> str:
    """What a hand wrote of the results: a page may begin with how something works."""
    text = text_of(page)
    start = text.index("**What was asked.**")
    return text[start : text.index(BEGIN)] + text[text.index(END) :]


def figures(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d[\d,]*\.\d{3}(?!\d)|(?<![\w.])\d{1,3}(?:,\d{3})+", text))


def test_tables_are_found_by_their_headings_and_read_as_numbers():
    assert [t.headings for t in read_tables(PAGE)] == [("One", "First"), ("One", "First", "Deeper"), ("One", "Second")]
    first = table_of(PAGE, "First", "mrr")
    assert first.estimate("mrr", "a|b") == Estimate(1250, 1205, 1297, n=0)
    assert table_of(PAGE, "Second").estimate("mrr", "rag") == Estimate(-0.1, -0.2, 0.1, n=0)
    assert table_of(PAGE, "First", "cause").cell("first", "drift") == "2"
    with pytest.raises(KeyError):
        first.row("richrag")
    with pytest.raises(ValueError, match="no number with an interval: '-'"):
        estimate("-")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_full_tables_say(page, tmp_path):
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs, ignore=shutil.ignore_patterns("images"))
    summarize(docs, page)
    assert (docs / f"{page}.md").read_text("utf-8") == text_of(page), "run python scripts/summaries.py"
    chart = Path(f"results/{Path(page).name}.svg")
    drawn, kept = (set(re.findall(r">([^<>]+)</text>", (d / chart).read_text("utf-8"))) for d in (docs, DOCS))
    assert drawn == kept
    assert (DOCS / chart).stat().st_size < 60_000


@pytest.mark.parametrize("page", PAGES)
def test_a_page_tells_no_figure_that_its_full_tables_have_not(page):
    _, sources = PAGES[page]
    full = "".join((DOCS / FULL.format(source)).read_text("utf-8") for source in sources)
    assert figures(told(page)) - figures(full) == set()


def test_a_chart_is_drawn_alike_and_told_in_words(tmp_path):
    dots = {"rag": Estimate(0.1, 0.05, 0.15, 9), "typed": Estimate(0.0, -0.1, 0.1, 9), "lm": Estimate(-1, -2, -0.5, 9)}
    panels = [Panel("MRR", dots), Panel("F1", {"a": Estimate(0.5, 0.4, 0.6, 9)}, None)]
    for folder in ("once", "again"):
        (tmp_path / folder).mkdir()
        draw(panels, tmp_path / folder / "chart.svg")
    once, again = ((tmp_path / folder / "chart.svg").read_bytes() for folder in ("once", "again"))
    assert once == again and BEYOND.encode() in once and WITHIN.encode() in once
    assert described(panels) == "Chart. MRR: rag above the line; lm below the line. F1: a 0.500."


def test_full_tables_begin_a_page_and_later_change_what_is_between_its_marks_alone(tmp_path):
    def written(mrr: float) -> str:
        better = run("typed", *(question(i, {"mrr": mrr}) for i in range(30)))
        measures = ("linkage/mrr", "cost/tokens")
        sections = [Section("antique", [run_of("rag", [0.25] * 30), better], 0, measures, {}, "30 questions.")]
        write_full(tmp_path, "results-systems", results_page("Worth", ["Made by hand."], sections))
        return (tmp_path / "results-systems.md").read_text("utf-8")

    begun = written(0.5)
    assert begun.startswith("# Worth\n\n## What to conclude\n\nNobody has concluded anything")
    assert f"\n\n## The figures\n\n{BEGIN}\n\n![Chart. " in begun
    assert "| ANTIQUE | typed | 30 | 0.500 [0.500, 0.500] | 100.0 [100.0, 100.0] |" in begun
    assert "[results-systems](results/full-results-systems.md)" in begun
    assert (tmp_path / "results/results-systems.svg").exists()
    (tmp_path / "results-systems.md").write_text(begun.replace("Nobody has", "We have"), "utf-8")
    again = written(0.75)
    assert "We have concluded" in again and "0.750 [0.750, 0.750]" in again and "0.500 [0.500" not in again
