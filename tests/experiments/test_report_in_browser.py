"""The report's page as a user meets it, in Chromium without a window."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import needs_browser, opened_browser, wait_for
from tests.experiments.runs import HOSTILE, full_run
from typedrag.experiments.report import write_report

pytest.importorskip("selenium", reason="needs selenium: it is among the packages for development")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    runs = [full_run("rag", 130, skill=0.4, hostile=True), full_run("typed_rag", 130, skill=0.6, hostile=True)]
    write_report(runs, out, title=HOSTILE)
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with opened_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    browser.get(page.as_uri())
    return browser


def rows(browser: webdriver.Chrome) -> list[WebElement]:
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#list > .question"))
    return browser.find_elements(By.CSS_SELECTOR, "#list > .question")


def count(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "count").text


def choose(browser: webdriver.Chrome, control: str, value: str) -> None:
    Select(browser.find_element(By.ID, control)).select_by_value(value)


def listed(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """The questions of the list as they stand in the document; those out of sight have no `text`."""
    return browser.execute_script("""
        return [...document.querySelectorAll("#list > .question")].map((row) => ({
            id: row.dataset.id,
            about: row.querySelector(".about").textContent.split(" · "),
            values: [...row.querySelectorAll(".values > span")].map((value) => value.lastChild.textContent),
        }))""")


def asked(browser: webdriver.Chrome) -> list[str]:
    return [row["id"] for row in listed(browser)]


def test_questions_are_shown_a_hundred_at_a_time(opened):
    assert count(opened) == "130 of 130 questions"
    assert len(rows(opened)) == 100
    more = opened.find_element(By.ID, "more")
    assert more.text == "Show 30 more of 30"
    opened.execute_script("arguments[0].click()", more)
    assert len(rows(opened)) == 130
    assert not more.is_displayed()


def test_the_answers_that_differ_most_lie_open_before_the_list(opened):
    wait_for(opened, lambda: len(opened.find_elements(By.CSS_SELECTOR, "#most > .question[open] .answer")) == 8)
    gains = opened.execute_script("""
        return [...document.querySelectorAll("#most .values")].map(
            (row) => [...row.children].map((value) => Number(value.lastChild.textContent)))""")
    differences = [after - before for before, after in gains]
    assert sorted(map(abs, differences), reverse=True) == list(map(abs, differences))
    assert sum(d > 0 for d in differences) == sum(d < 0 for d in differences) == 2
    assert (
        opened.execute_script(
            "return document.querySelector('#most').compareDocumentPosition(document.querySelector('#list'))"
        )
        == 4
    )  # the list follows


def test_filters_by_type_subset_text_and_failure(opened):
    choose(opened, "type", "reason")
    wait_for(opened, lambda: count(opened).startswith("22 of"))
    assert {row["about"][0] for row in listed(opened)} == {"reason"}
    choose(opened, "subset", "NQ-NF")
    wait_for(opened, lambda: count(opened).startswith("22 of"))
    choose(opened, "subset", "HQA-NF")
    wait_for(opened, lambda: count(opened).startswith("0 of"))
    choose(opened, "type", "")
    choose(opened, "subset", "")
    opened.find_element(By.ID, "search").send_keys("THING 77 ")
    wait_for(opened, lambda: asked(opened) == ["q77"])
    rows(opened)[0].find_element(By.TAG_NAME, "summary").click()  # leaves the field, which must not draw the list anew
    wait_for(opened, lambda: "thing 77" in opened.find_element(By.CSS_SELECTOR, "#list .question[open] .panel").text)
    opened.find_element(By.ID, "search").clear()
    opened.find_element(By.ID, "search").send_keys(" ")
    choose(opened, "only", "failed")
    wait_for(opened, lambda: 0 < len(rows(opened)) < 20)
    assert all("failed" in row["values"] for row in listed(opened))


def test_the_biggest_difference_comes_first(opened):
    choose(opened, "measure", "linkage/expected_rank")
    choose(opened, "order", "gain")

    def differences() -> list[float]:
        values = [row["values"] for row in listed(opened)[:40]]
        return [float(rag) - float(typed) for rag, typed in values if not {"-", "failed"} & {rag, typed}]

    wait_for(opened, lambda: differences()[0] > 2)  # a lower rank is a gain
    gains = differences()
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(2.7)
    choose(opened, "order", "loss")
    wait_for(opened, lambda: differences()[0] < -2)


def test_a_question_opens_by_keyboard_and_shows_all_of_its_answers(opened):
    summary = next(row for row in rows(opened) if row.get_attribute("data-id") == "q7").find_element(
        By.TAG_NAME, "summary"
    )
    summary.send_keys(Keys.ENTER)
    wait_for(opened, lambda: opened.find_elements(By.CSS_SELECTOR, "#list .question[open] .panel"))
    cards = opened.find_elements(By.CSS_SELECTOR, "#list .question[open] .answer")
    assert [card.find_element(By.TAG_NAME, "h3").text for card in cards] == ["rag", "typed_rag"]
    assert "rag holds that thing 7 is so" in cards[0].text
    assert "LM calls" in cards[0].text
    for folded in cards[0].find_elements(By.CSS_SELECTOR, ":scope > details > summary"):
        folded.send_keys(Keys.ENTER)
    wait_for(opened, lambda: "Passage 4 of 7" in cards[0].text)
    text = cards[0].text
    for said in ("linkage: rank", "expected_rank", "40%", "2 passages cited", "what of 1", "a sub-query like another"):
        assert said in text
    covered = opened.find_element(By.CSS_SELECTOR, "#list .question[open] .covered")
    assert "Which core matter 0 is behind thing 7?" in covered.text
    assert covered.text.count("answered") == 2 * 9


def test_no_script_of_a_stranger_runs_and_nothing_is_fetched(opened):
    summary = rows(opened)[0].find_element(By.TAG_NAME, "summary")
    summary.send_keys(Keys.ENTER)
    wait_for(opened, lambda: HOSTILE in opened.find_element(By.CSS_SELECTOR, "#list .question[open]").text)
    assert opened.title == HOSTILE
    assert opened.execute_script("return window.harmed") is None
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert opened.get_log("browser") == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_at_the_side(opened, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for summary in opened.find_elements(
            By.CSS_SELECTOR, "section > details > summary, #list > .question:nth-child(2) > summary"
        ):
            opened.execute_script("arguments[0].click()", summary)
        wait_for(opened, lambda: opened.find_elements(By.CLASS_NAME, "panel"))
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_s_policy_stops_what_would_get_through(opened):
    opened.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.harmed = 1'; document.body.append(s)"
    )
    assert opened.execute_script("return window.harmed") is None
    assert "Content Security Policy" in opened.get_log("browser")[0]["message"]
