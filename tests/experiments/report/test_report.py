import json
import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from bs4 import BeautifulSoup, Tag

from tests.experiments.runs import HOSTILE, SUBSETS, TYPES, check_page, full_run, question, run
from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.experiments.compare import ALL, Difference
from typedrag.experiments.judges.pairwise import ComparedAnswers, PairwiseComparison
from typedrag.experiments.report import BarChart, Forest, build_coverage, render_report, write_report
from typedrag.experiments.results import MetricResult, QuestionResult, Run
from typedrag.metrics.judges.preference import Verdicts

RUNS = ("rag", "typed_rag", "direct_lm")


def preferences(n: int) -> PairwiseComparison:
    """The first of two runs wins on half of the questions; on the others the judge likes the first place."""
    answers = [
        ComparedAnswers(f"q{i}", run, other, Verdicts("first", "second" if i % 2 else "first", 0.6))
        for run, other in combinations(RUNS, 2)
        for i in range(n)
    ]
    return PairwiseComparison(RUNS, {"model": "embedded"}, tuple(answers))


@pytest.fixture(scope="module")
def page() -> BeautifulSoup:
    runs = [
        full_run("rag", 24, skill=0.2, hostile=True),
        full_run("typed_rag", 24, skill=0.9),
        full_run("direct_lm", 12, skill=0.4, **{"metric linkage": {"scorer": "gpt"}, HOSTILE: HOSTILE}),
    ]
    runs[2] = replace(runs[2], planned=24)
    return BeautifulSoup(render_report(runs, pairwise=preferences(24), title=f"Bread {HOSTILE}"), "html.parser")


def rows(found: Tag, caption: str) -> list[list[str]]:
    table = next(t for t in found.find_all("table") if t.caption.get_text() == caption)
    return [[" ".join(c.get_text(" ").split()) for c in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def test_the_page_needs_nothing_but_itself(page):
    check_page(page)
    assert all(a["href"].startswith("#") for a in page.find_all("a"))


def test_texts_of_strangers_stay_texts(page):
    data, code = page.find_all("script")
    assert data["type"] == "application/json"
    assert "harmed" not in code.string
    assert "<" not in data.string
    assert json.loads(data.string)["questions"][0]["results"][0]["answer"]["text"] == HOSTILE
    assert page.h1.get_text() == f"Bread {HOSTILE}"
    assert HOSTILE in [cell.get_text() for cell in page.select("td.setting")]


def test_it_opens_with_a_sentence_a_pair_and_a_forest_plot_and_ends_with_the_settings(page):
    sections = [section["id"] for section in page.find_all("section")]
    assert (sections[:2], sections[-2:]) == (["summary", "answers"], ["questions", "runs"])
    [sentence] = (p.get_text() for p in page.select("#summary .sentence"))
    assert sentence.startswith("typed_rag is better than rag by linkage (+0.") and sentence.endswith(" in tokens.")
    plotted = rows(page, "Difference from rag by one measure of each metric, with its 95 % interval")[1:]
    assert [row[0] for row in plotted] == ["linkage", "coverage"]
    assert plotted[0][-1].endswith("better")
    assert page.select_one("#runs > details:not([open])")
    assert "direct_lm is unfinished: 12 of 24" in page.header.get_text()


def test_truthfulness_leads_where_it_was_measured():
    def with_truth(name: str, value: float) -> Run:
        measured = full_run(name, 24)
        truth = {"truthfulness": MetricResult((value + 1) / 2, measures={"truthfulness": value, "right": value})}
        return replace(measured, questions=tuple(replace(q, metrics=q.metrics | truth) for q in measured.questions))

    page = BeautifulSoup(render_report([with_truth("rag", 1.0), with_truth("typed_rag", 0.0)]), "html.parser")
    assert page.select_one(".sentence").get_text().startswith("typed_rag is less truthful than rag (-1.000 [")
    assert page.select_one(".forest tbody th").get_text() == "truthfulness"
    assert page.select_one("#types h2").get_text() == "truthfulness/truthfulness by question type"
    assert json.loads(page.find("script", id="data").string)["measure"] == "truthfulness/truthfulness"


def test_in_a_forest_plot_better_is_to_the_right():
    def difference(value: float, more_is_better: bool) -> Difference:
        e = Estimate(value, value - 0.1, value + 0.1, 20)
        return Difference(
            n=20, difference=e, more_is_better=more_is_better, measure="m/score", run="r", stratum=ALL, left_out={}
        )

    forest = Forest((up := difference(0.4, True), down := difference(-0.2, False)))
    assert forest.reach == 0.5
    assert [forest.place(up, 0.4), forest.place(up, 0.0), forest.place(down, -0.2)] == [87.6, 50.0, 68.8]


def test_settings_and_n_of_each_run(page):
    found = {name: cells for name, *cells in rows(page, "What differs between the runs")}
    assert found["questions done"] == ["24 of 24", "24 of 24", "12 of 24 unfinished"]
    assert found["program"] == list(RUNS)
    assert found["metric linkage.scorer"] == ["embedded", "embedded", "gpt"]
    assert "wiki-nfqa" in page.select_one("#runs dl").get_text()


def test_the_table_by_subset_has_rows_by_scorer_and_the_chance_level(page):
    head, *body = rows(page, "linkage/mrr by subset")
    assert head == ["run", "all", *SUBSETS]
    assert [row[0] for row in body] == [
        "scorer embedded", "rag", "typed_rag", "scorer gpt", "direct_lm", "random ranking"
    ]  # fmt: skip
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\] n \d+", body[1][1])
    assert body[-1][1:] == ["0.521"] * 4


def test_bars_below_zero_hang_from_the_axis():
    chart = BarChart(["reason"], [[Estimate(-0.6, -0.9, -0.3, 8)], [Estimate(0.5, 0.2, 0.8, 8)]], top=1.0)
    assert (chart.bottom, chart.ticks) == (-1.0, [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0])
    assert [chart.height(value) for value in (-1.0, 0.0, 1.0)] == [0.0, 138.0, 276.0]


def test_coverage_by_sub_question_type_and_scenario(page):
    head, *body = rows(page, "Sub-questions by type, and how often each scenario occurs")
    assert head[:5] == ["run", "type", "sub-questions", "answered", "retrieved"]
    assert [row[:2] for row in body[:3]] == [["rag", "core"], ["rag", "background"], ["rag", "follow-up"]]
    for row in body:
        assert sum(int(cell.rstrip("%")) for cell in row[5:]) == pytest.approx(100, abs=2)
    assert len(page.select("#coverage svg")) == 2


def test_where_no_passage_was_judged_nothing_is_said_of_passages():
    judged = full_run("rag", 12, skill=0.5)
    for found in judged.questions:
        for sub_question in found.metrics["coverage"].details["sub_questions"]:
            sub_question["retrieved"] = []
    page = BeautifulSoup(render_report([judged]), "html.parser")
    for row in rows(page, "Sub-questions by type, and how often each scenario occurs")[1:]:
        assert row[3] != "-" and row[4:] == ["-"] * 5
    assert len(page.select("#coverage svg")) == 1
    assert "what passages cover was not judged" in page.select_one("#coverage").get_text()


def test_shares_of_coverage_rest_on_questions_whatever_their_ids():
    def judged(number: int, answered: bool) -> QuestionResult:
        details = {"type": "core", "answered": answered, "retrieved": [], "position": None, "text": "Who?"}
        asked = question(number, text="Why is it so?" if answered else "How does it go?")
        return replace(asked, metrics={"coverage": MetricResult(0.5, details={"sub_questions": [details]})})

    found = build_coverage([run("rag", *(judged(n, n % 2 == 0) for n in range(10)))], seed=0)
    [core] = [row for row in found if row.n]
    assert core.n == 10 and core.answered == Estimate(0.5, None, None, 2)  # ten ids, two questions


def test_the_win_rate_matrix_and_the_judge_s_liking_for_a_place(page):
    head, first, second, _ = rows(page, "Win rates")
    assert head == ["run", *RUNS]
    assert first[2].startswith("75%")
    assert second[1].startswith("25%")
    assert "12 won, 12 tied, 0 lost" in first[2] and "likelier: 100%" in first[2]
    assert "agreed with itself in 50% of the pairs" in page.select_one("#preferences").get_text()


def test_runs_that_do_not_compare_are_shown_and_named(page):
    assert "direct_lm does not compare with rag: another metric linkage" in page.select_one("#summary").get_text()
    section = page.select_one("#comparison")
    assert [h.get_text() for h in section.find_all("h3")] == ["typed_rag"]
    found = {row[0]: row for row in rows(page, "typed_rag against rag, all questions")}
    assert {"linkage/score", "linkage/mrr", "coverage/core", "cost/tokens"} <= set(found)
    assert (found["linkage/score"][5], found["linkage/mrr"][5:7]) == ("better", ["", "-"])


def test_runs_of_one_name_of_which_one_does_not_compare_keep_the_names_they_have_on_the_page():
    old = full_run("rag", 6, **{"dataset fingerprint": "another"})
    runs = [full_run("typed_rag", 6), replace(old, path=Path("old/rag")), full_run("rag", 6)]
    page = BeautifulSoup(render_report(runs), "html.parser")
    assert [h.get_text() for h in page.select_one("#comparison").find_all("h3")] == ["rag (runs/rag)"]


def test_failures_fallbacks_and_judges_are_counted(page):
    data = json.loads(page.find("script", id="data").string)
    failed = sum(bool(q["results"][0]["error"]) for q in data["questions"])
    caption = "Questions by type: without an answer, answered by a fallback, not answered, from what the LM knows"
    by_type = {row[0]: row[1:] for row in rows(page, caption)}
    assert by_type["all"][0].startswith(f"{failed} failed")
    assert by_type["all"][0].endswith("1 (4 %) not answered, 1 (4 %) from the LM's knowledge")
    told = [q["results"][0]["answer"] for q in data["questions"][5:7]]
    assert [(a["answered"], a["grounded"]) for a in told] == [("nothing", False), ("knowledge", False)]
    assert set(by_type) == {"type", "all", *TYPES}
    judges = rows(page, "Answers by metric: whose judge could not be read, and with nothing to measure by")
    assert [row[0] for row in judges] == ["metric", "linkage", "coverage"]


def test_it_can_be_read_without_eyes(page):
    assert page.html["lang"] == "en"
    labelled = {
        id_ for label in page.find_all("label") for tag in label.find_all(["input", "select"]) for id_ in [tag["id"]]
    }
    assert labelled == {tag["id"] for tag in page.find_all(["input", "select"])}
    assert all(table.caption for table in page.find_all("table"))
    assert all(th.get("scope") for th in page.find_all("th"))
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.find_all("svg"))
    assert all(b.get("aria-label") or b.get_text(strip=True) for b in page.find_all("button"))
    levels = [int(h.name[1]) for h in page.find_all(re.compile(r"^h\d$"))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_colours_have_contrast_in_both_themes(page):
    colours = dict(re.findall(r"--(\w+): light-dark\((#\w{6}), #\w{6}\)", page.style.string))
    dark = dict(re.findall(r"--(\w+): light-dark\(#\w{6}, (#\w{6})\)", page.style.string))
    least = {**dict.fromkeys(("text", "soft", "link", "good", "bad", "warn"), 4.5), **{f"s{i}": 3 for i in range(8)}}
    found = {
        (ground, name): min(contrast(theme[name], theme[ground]) for theme in (colours, dark))
        for ground in ("page", "panel", "tint")
        for name in least
    }
    assert {pair: ratio for pair, ratio in found.items() if ratio < least[pair[1]]} == {}


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_what_a_run_lacks_is_left_out(tmp_path: Path):
    write_report([run("rag", question(0, {"f1": 0.5}), question(1, judge_failed=True))], tmp_path / "r.html")
    found = BeautifulSoup((tmp_path / "r.html").read_text("utf-8"), "html.parser")
    sections = [s["id"] for s in found.find_all("section")]
    assert sections == ["subsets", "types", "measures", "costs", "failures", "questions", "runs"]
    assert "1 of 2 failed" in found.select_one("#failures").get_text()
    assert "0 of 5" in render_report([run("rag", planned=5), run("lm", question(0, answer=None))])


def test_no_run_is_refused_and_so_is_a_file_that_cannot_be_written(tmp_path: Path):
    with pytest.raises(InputError, match="no run to report on"):
        render_report([])
    with pytest.raises(InputError, match="No such file"):
        write_report([run("rag", question(0))], tmp_path / "no" / "r.html")
