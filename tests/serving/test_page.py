"""The page as a person meets it, in Chromium without a window."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.browser import needs_browser, opened_browser, wait_for
from tests.lm_server import LMServer, lm_server
from tests.serving import uniforms
from tests.serving.server import Server, program, served
from tests.serving.uniforms import ANSWER, QUESTION
from typedrag.core.records import Passage
from typedrag.datasets.feedback import FeedbackFile
from typedrag.lms import models
from typedrag.retrieval import BM25Retriever, build_index
from typedrag.sub_questions.coverage_judge import SimilarityCoverageJudge

pytest.importorskip("selenium", reason="needs selenium: it is among the packages for development")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

pytestmark = needs_browser

HARM = "<img src=x onerror='window.harmed=1'>"
HOSTILE = [
    Passage("a</li><script>window.harmed=1</script>", f"Zebras graze on plains {HARM} all day. Zebras sleep.", HARM),
    Passage("b", "Zebras drink at rivers </p><script>window.harmed=1</script> each evening.", 'Rivers"><b onclick=x>'),
]
HOSTILE_QUESTION = f"How do zebras live {HARM}?"
HOSTILE_ANSWER = f"Zebras graze on plains {HARM} all day.\n<script>window.harmed=1</script> Zebras drink at rivers."

_WATCH = """
    window.seen = {states: [], lengths: [], nodes: []};
    new MutationObserver(() => {
        const of = (selector) => [...document.querySelectorAll(selector)];
        seen.nodes.push(of(".below > .node").length);
        seen.states.push(...of(".node").map((node) => node.dataset.state));
        if (document.querySelector(".status")?.textContent === "Writing")
            seen.lengths.push([of(".below > .node").length, of(".answer .text")[0].textContent.length]);
    }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
"""


@dataclass
class Front:
    """What stands before the server: the API key that is asked for, if any, and the names of its programs."""

    app: Any = None
    key: str = ""
    names: tuple[str, ...] = ("typed_rag",)

    def before(self, app: Any) -> Front:
        """Stand before a server."""
        self.app = app
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if (
            path.startswith("/v1/")
            and self.key
            and f"Bearer {self.key}".encode() not in dict(scope["headers"]).values()
        ):
            error = {"message": "No valid API key was given.", "code": "invalid_api_key"}
            await _send(send, 401, {"error": error})
        elif path == "/v1/models":
            await _send(send, 200, {"object": "list", "data": [{"id": name} for name in self.names]})
        else:
            await self.app(scope, receive, send)


async def _send(send: Any, status: int, body: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@dataclass
class Page:
    """The page, opened; `problems` are what the browser may say in its console: replies that are errors."""

    browser: webdriver.Chrome
    lm: LMServer
    server: Server
    front: Front
    problems: tuple[str, ...] = field(default=())

    def at(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.at(selector).text

    def do(self, script: str, *values: Any) -> Any:
        return self.browser.execute_script(script, *values)

    def wait(self, selector: str) -> WebElement:
        wait_for(self.browser, lambda: [at for at in self.all(selector) if at.is_displayed()])
        return self.at(selector)

    def open(self) -> Page:
        self.browser.get(f"{self.server.url}/")
        wait_for(self.browser, lambda: self.do("return document.querySelectorAll('#program option').length"))
        return self

    def type(self, question: str) -> None:
        self.at("#question").send_keys(question, Keys.ENTER)

    def ask(self, question: str = QUESTION) -> None:
        """Ask, and wait for the answer."""
        self.type(question)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way."""
        wait_for(self.browser, lambda: self.all(".answer") and not self.all(".answer[aria-busy]"))

    def focused(self) -> WebElement:
        return self.browser.switch_to.active_element

    def press(self, *keys: str) -> None:
        for key in keys:
            webdriver.ActionChains(self.browser).send_keys(key).perform()

    def tab_to(self, selector: str) -> WebElement:
        """Press Tab until an element has the focus."""
        for _ in range(60):
            self.press(Keys.TAB)
            if self.do("return document.activeElement.matches(arguments[0])", selector):
                return self.focused()
        raise AssertionError(f"Tab does not come to {selector}")

    def width(self, width: int) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, **features: str) -> None:
        named = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})


@pytest.fixture(scope="module")
def hostile_retriever(tmp_path_factory: pytest.TempPathFactory) -> BM25Retriever:
    folder = tmp_path_factory.mktemp("hostile") / "index"
    build_index(HOSTILE, folder, sources=["hostile"])
    return BM25Retriever(folder)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, sample_retriever: BM25Retriever, hostile_retriever: BM25Retriever
) -> Iterator[Page]:
    front = Front()
    with lm_server() as lm:
        programs = [program(lm, "typed_rag", sample_retriever), program(lm, "rag", hostile_retriever), program(lm)]
        with (
            served(*programs, wrap=front.before, running=2, queue=0) as server,
            opened_browser(tmp_path_factory.mktemp("profile")) as browser,
        ):
            yield Page(browser, lm, server, front)


@pytest.fixture
def page(whole: Page) -> Iterator[Page]:
    """The page, newly opened; in the end nothing may stand in the browser's console but replies that are errors."""
    whole.lm.reply, whole.lm.seconds, whole.lm.pause, whole.lm.left = uniforms.reply, 0.0, 0.0, 0
    whole.lm.calls.clear()
    whole.front.key, whole.front.names = "", ("typed_rag",)
    whole.open().do("sessionStorage.clear()")
    whole.browser.get_log("browser")
    whole.problems = ()
    yield whole.open()
    said = [entry["message"] for entry in whole.browser.get_log("browser")]
    assert [message for message in said if not any(known in message for known in whole.problems)] == []
    whole.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    whole.prefer()


def paragraphs(page: Page) -> list[str]:
    """The text of an answer, without the numbers of its sources."""
    return page.do("""return [...document.querySelectorAll(".answer .text p")].map((paragraph) => {
        const copy = paragraph.cloneNode(true);
        copy.querySelectorAll("button").forEach((cite) => cite.remove());
        return copy.textContent;
    })""")


def test_the_tree_grows_and_the_answer_is_written_token_by_token(page):
    page.do(_WATCH)
    page.lm.seconds, page.lm.pause = 0.1, 0.03
    page.ask()
    assert Select(page.at(".type")).first_selected_option.text == "Debate"
    seen = page.do("return window.seen")
    assert {"searching", "reading", "answered"} <= set(seen["states"])
    assert seen["nodes"] == sorted(seen["nodes"])
    lengths = [length for nodes, length in seen["lengths"] if length]
    assert {nodes for nodes, length in seen["lengths"] if length} == {3}
    assert len(set(lengths)) > 10
    assert lengths == sorted(lengths)
    assert [at.text for at in page.all(".below > .node .query")] == [uniforms.FOR, uniforms.AGAINST, uniforms.COST]
    assert "\n\n".join(paragraphs(page)) == ANSWER
    assert "5 LM calls · 550 tokens" in page.text(".cost")
    assert page.at(".answer .text").get_attribute("aria-live") == "polite"


def test_a_sub_query_opens_to_its_answer_and_passages(page):
    page.ask()
    node = page.all(".below > .node")[1]
    assert not node.find_element(By.CSS_SELECTOR, ".folded").is_displayed()
    node.find_element(By.TAG_NAME, "summary").click()
    text = node.text
    assert "answered from 1 passage" in text
    assert "Opponents\nClothing is part of how young people find out who they are." in text
    node.find_element(By.XPATH, ".//button[contains(., 'freedom and self-expression')]").click()
    assert "Teenagers learn judgement" in page.text("dialog[open] .text")
    page.press(Keys.ESCAPE)
    page.at(".steps summary").click()
    assert "mediate" in page.text(".steps")


def test_a_citation_opens_the_passage_and_marks_the_sentence(page):
    page.ask()
    cite = next(at for at in page.all(".cite") if at.text == "3")
    cite.click()
    assert page.text("dialog[open] h2") == "School uniforms: freedom and self-expression"
    assert page.text("dialog[open] .place") == "Source 3 of 4 · uniforms-3"
    assert page.text("dialog[open] .claim").startswith("The answer says: Opponents reply")
    [marked] = page.all("dialog[open] mark")
    assert marked.text.startswith("Rules on hair, skirts or head coverings have hit girls")
    page.press(Keys.ESCAPE)
    assert not page.all("dialog[open]")
    assert page.focused() == cite
    page.all(".sources .passage")[0].click()
    assert page.text("dialog[open] h2") == "School uniforms: equality and belonging"
    assert len(page.all("dialog[open] mark")) == 2
    page.at("dialog[open] .close").click()
    assert not page.all("dialog[open]")


def test_what_strangers_wrote_is_text(page):
    def reply(call):
        return {"citations": [1, 2], "answered": True, "answer": HOSTILE_ANSWER} if "citations" in call.wanted else None

    page.lm.reply, page.front.names = reply, ("rag",)
    page.open().ask(HOSTILE_QUESTION)
    assert page.text("#asked") == HOSTILE_QUESTION
    assert paragraphs(page) == HOSTILE_ANSWER.split("\n")
    assert HARM in page.text(".sources")
    page.at(".cite").click()
    assert HARM in page.text("dialog[open] h2")
    assert HARM in page.text("dialog[open] mark")
    page.press(Keys.ESCAPE)
    for summary in page.all(".way summary"):
        summary.click()
    page.open()
    assert page.text(".earlier") == HOSTILE_QUESTION
    page.at(".earlier").click()
    assert paragraphs(page) == HOSTILE_ANSWER.split("\n")
    assert page.do("return window.harmed") is None
    assert not page.all("main img, main script, dialog img, [onerror], [onclick]")


def test_a_question_is_stopped(page):
    page.lm.pause = 0.5
    page.type(QUESTION)
    wait_for(page.browser, lambda: page.text(".answer .text"))
    page.at("#stop").click()
    wait_for(page.browser, lambda: page.text(".status") == "Stopped")
    assert page.focused() == page.at("#send")
    wait_for(page.browser, lambda: page.server.under_way == 0 and page.lm.left == 1)
    assert 0 < len(page.text(".answer .text")) < len(ANSWER)
    assert not page.at(".sources").is_displayed()
    assert page.text(".tree .state").endswith("not finished")
    page.lm.pause = 0.0
    page.ask()
    assert "\n\n".join(paragraphs(page)) == ANSWER


def test_two_programs_side_by_side(page):
    assert not page.at("#programs").is_displayed()
    page.front.names = ("typed_rag", "direct_lm")
    page.open()
    page.at("#compare").click()
    assert Select(page.at("#other")).first_selected_option.text == "direct_lm"
    page.ask()
    assert [at.text for at in page.all(".answer .program")] == ["typed_rag", "direct_lm"]
    left, right = page.all(".answer")
    assert left.location["y"] == right.location["y"] and left.location["x"] < right.location["x"]
    assert page.text(".answer .text").startswith("Supporters say")
    assert page.all(".answer .caution")[1].text.startswith("Not from the collection.")
    page.at("#compare").click()
    page.ask("Why?")
    assert len(page.all(".answer")) == 1


@pytest.mark.parametrize(
    ("program_name", "answered", "said"),
    [
        ("direct_lm", True, "Not from the collection. This is what the language model knows"),
        ("typed_rag", False, "Not answered. The collection holds no answer"),
    ],
)
def test_what_is_not_from_the_collection_is_marked(page, program_name, answered, said):
    if not answered:
        page.lm.reply = lambda call: (
            {"citations": [], "answered": False, "answer": ""} if "citations" in call.wanted else uniforms.reply(call)
        )
    page.front.names = (program_name,)
    page.open().ask()
    assert page.text(".caution").startswith(said)
    assert not page.at(".sources").is_displayed()


def test_too_many_questions_are_refused_in_words_and_asked_again(page):
    page.problems = ("status of 429",)
    page.lm.seconds = 1.0
    others = [threading.Thread(target=page.server.ask, args=(f"Why {n}?",)) for n in range(2)]
    for other in others:
        other.start()
    wait_for(page.browser, lambda: page.server.under_way == 2)
    page.ask()
    assert page.text(".problem") == "Too many questions wait for an answer; ask again later."
    assert re.fullmatch(r"It is worth asking again in \d+ seconds?\.", page.text(".advice"))
    for other in others:
        other.join()
    page.lm.seconds = 0.0
    page.at(".again").click()
    page.wait(".cite")
    assert not page.at(".failure").is_displayed()


def test_a_server_that_is_gone_is_told_in_words(page):
    page.problems = ("net::ERR",)
    page.browser.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        page.ask()
        assert page.text(".problem") == "The server cannot be reached."
    finally:
        page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})


def test_an_api_key_is_asked_for_and_kept_for_this_visit(page):
    page.problems = ("status of 401",)
    page.front.key = "secret-1"
    page.type(QUESTION)
    page.wait("#key-form")
    wait_for(page.browser, lambda: page.focused() == page.at("#key"))
    page.press("wrong", Keys.ENTER)
    wait_for(page.browser, lambda: page.at("#key-form").is_displayed() and page.focused() == page.at("#key"))
    page.at("#key").send_keys("secret-1", Keys.ENTER)
    page.wait(".cite")
    assert not page.at("#key-form").is_displayed()
    assert "secret-1" not in page.do("return document.documentElement.outerHTML + JSON.stringify({...localStorage})")
    page.browser.refresh()
    page.ask("Why?")
    assert page.text(".answer .text")


def test_what_was_asked_in_this_visit_can_be_read_again(page):
    page.ask()
    page.ask("Why are the leaves of my houseplant turning yellow?")
    assert [at.text for at in page.all(".earlier")][1] == QUESTION
    page.browser.refresh()
    page.wait(".earlier")
    asked = len(page.lm.calls)
    page.all(".earlier")[1].click()
    assert page.text("#asked") == QUESTION
    assert page.focused() == page.at("#asked")
    assert "\n\n".join(paragraphs(page)) == ANSWER
    assert len(page.all(".below > .node")) == 3
    page.at(".cite").click()
    assert page.all("dialog[open] mark")
    page.press(Keys.ESCAPE)
    assert len(page.lm.calls) == asked


@pytest.mark.parametrize("button", [".copy-curl", ".copy-python"])
def test_what_is_copied_asks_the_same(page, button):
    question = """Should "schools" require pupils' uniforms, at $HOME `pwd` \\ or é?"""
    page.ask(question)
    page.browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"origin": page.server.url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    page.at(button).click()
    wait_for(page.browser, lambda: page.do("return document.getElementById('announcer').textContent") == "Copied.")
    copied = page.browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    command = ["bash", "-c", copied] if "curl" in button else [sys.executable, "-c", copied]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    if "curl" in button:
        assert json.loads(run.stdout)["question"] == question
    assert "Supporters say that pupils" in run.stdout


def test_feedback_is_sent_where_the_server_keeps_it(page, tmp_path):
    page.ask()
    assert not page.at(".thumbs").is_displayed()
    file = tmp_path / "feedback.sqlite"
    with served(program(page.lm), feedback=file, wrap=Front(names=("direct_lm",)).before) as server:
        page.browser.get(f"{server.url}/")
        page.ask()
        page.at(".up").click()
        wait_for(page.browser, lambda: page.text(".thanks").startswith("Thank you"))
        assert page.at(".up").get_attribute("aria-pressed") == "true"
        page.ask("Why?")
        page.at(".down").click()
        page.at(".correction textarea").send_keys("It depends.")
        page.at(".correction button").click()
        wait_for(page.browser, lambda: page.at(".down").get_attribute("aria-pressed") == "true")
    good, bad = FeedbackFile(file)
    assert [(answer.question, said.rating, said.correction) for answer, said in (good, bad)] == [
        (QUESTION, "up", ""),
        ("Why?", "down", "It depends."),
    ]


def test_another_type_is_chosen_in_a_menu_asked_again_and_kept_as_feedback(page, sample_retriever, tmp_path):
    file, front = tmp_path / "feedback.sqlite", Front(names=("typed_rag",))
    with served(program(page.lm, "typed_rag", sample_retriever), feedback=file, wrap=front.before) as server:
        page.browser.get(f"{server.url}/")
        page.ask()
        Select(page.at(".type")).select_by_visible_text("Instruction")
        wait_for(page.browser, lambda: page.text(".answer .text") and not page.all(".answer[aria-busy]"))
        assert Select(page.at(".type")).first_selected_option.text == "Instruction"
        page.do("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as on a page without TLS
        page.at(".copy-curl").click()
        assert '"question_type":"instruction"' in page.wait("#snippet textarea").get_attribute("value")
        wait_for(page.browser, lambda: list(FeedbackFile(file)))
    [(answer, said)] = FeedbackFile(file)
    assert (answer.question, answer.question_type) == (QUESTION, "debate")
    assert (said.question_type, said.rating) == ("instruction", None)


def test_coverage_is_checked(page):
    models.fetch("all-minilm-l6-v2")
    SimilarityCoverageJudge()(text="Bread rises.", sub_questions=["What rises?"])  # loads it, which takes seconds
    page.ask()
    page.at(".check-coverage").click()
    page.wait(".covered")
    assert page.text(".coverage").startswith("What a full answer would cover\n")
    assert "of 5 core sub-questions are covered." in page.text(".coverage")
    items = {at.text.split("\n")[0]: at for at in page.all(".covered li") if at.is_displayed()}
    assert len(items) == 5
    [covered] = [text for text in items if text.startswith("How much does a school uniform cost")]
    assert items[covered].get_attribute("data-covered") == "true"
    assert covered.endswith("family? covered")


def test_all_can_be_done_by_keyboard(page):
    assert page.focused() == page.at("#question")
    page.press(QUESTION, Keys.ENTER)
    page.settle()
    assert page.focused() == page.at("#question")
    order = [page.tab_to(selector) for selector in (".cite", ".sources .passage", ".check-coverage", ".tree summary")]
    assert all(
        page.do("arguments[0].focus({focusVisible: true}); return getComputedStyle(arguments[0]).outlineStyle", at)
        == "solid"
        for at in order
    )
    order[0].send_keys(Keys.ENTER)
    assert page.at("dialog[open]")
    page.press(Keys.ESCAPE)
    assert page.focused() == order[0]
    order[-1].send_keys(Keys.ENTER)
    assert page.at(".tree details[open] .passages")
    field = page.at("#question")
    field.send_keys("one")
    webdriver.ActionChains(page.browser).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
    field.send_keys("two")
    assert field.get_attribute("value") == "one\ntwo"


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_at_the_side(page, width):
    long = "w" * 300

    def reply(call):
        said = uniforms.reply(call)
        return {**said, "answer": f"{long}\n{said['answer']}"} if said and "answer" in said else said

    page.lm.reply, page.front.names = reply, ("typed_rag", "direct_lm")
    page.width(width)
    page.open().at("#compare").click()
    page.ask(f"Should schools require {long}?")
    for summary in page.all("summary"):
        page.do("arguments[0].click()", summary)
    assert page.do("return document.documentElement.scrollWidth") <= width
    page.at(".cite").click()
    box = page.at("dialog[open]").rect
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.press(Keys.ESCAPE)
    left, right = page.all(".answer")
    assert (left.location["x"] == right.location["x"]) == (width == 360)


def test_axe_finds_nothing_to_mend(page):
    axe_selenium = pytest.importorskip("axe_selenium_python", reason="needs axe-selenium-python, for development")

    def violations() -> list[tuple[str, list[str]]]:
        axe = axe_selenium.Axe(page.browser)
        axe.inject()
        rules = '{rules: {"autocomplete-valid": {enabled: false}}}'  # axe 3 takes `off` for no value of a password
        found = axe.run(options=rules)["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]

    page.prefer(reduced_motion="reduce")
    page.front.names = ("typed_rag", "direct_lm")
    assert violations() == []
    page.open().at("#compare").click()
    page.ask()
    page.do(
        "document.querySelectorAll('.correction, .thumbs, .failure, #key-form').forEach((at) => (at.hidden = false))"
    )
    for summary in page.all("summary"):
        page.do("arguments[0].click()", summary)
    assert violations() == []
    page.at(".cite").click()
    assert violations() == []


def test_the_policy_stops_what_would_get_through(page):
    page.problems = ("Content Security Policy",)
    page.do("const s = document.createElement('script'); s.textContent = 'window.harmed = 1'; document.body.append(s)")
    page.do("document.body.setAttribute('style', 'color: red')")
    assert page.do("return window.harmed") is None
    said = [entry["message"] for entry in page.browser.get_log("browser")]
    assert len([message for message in said if "Content Security Policy" in message]) >= 2
