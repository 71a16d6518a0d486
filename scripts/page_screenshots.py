"""Take the screenshots of the server's page and of the report.

    python -m scripts.page_screenshots

The answers are written in tests/serving/uniforms.py: no LM is asked. The index is that of the sample corpus. The
report compares two invented runs.
"""

import base64
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import opened_browser, wait_for
from tests.experiments.runs import full_run
from tests.lm_server import lm_server
from tests.serving import uniforms
from tests.serving.server import program, served
from typedrag.datasets.sample import PASSAGES
from typedrag.experiments.report import write_report
from typedrag.retrieval import BM25Retriever, build_index, read_passages

OUT = Path(__file__).parents[1] / "docs" / "images"
SHOTS = {"page-light": (1060, 800, "light"), "page-dark": (1000, 640, "dark"), "page-phone": (390, 844, "light")}
"""The width, height and colours of each screenshot."""
MOST_BYTES = 150_000


def main() -> None:
    """Take all of them."""
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        index, profile = Path(folder) / "index", Path(folder) / "profile"
        build_index(read_passages([PASSAGES]), index, sources=["sample"])
        retriever = BM25Retriever(index)
        with (
            lm_server(reply=uniforms.reply) as lm,
            served(program(lm, "typed_rag", retriever), program(lm, "rag", retriever)) as server,
            opened_browser(profile) as browser,
        ):
            for name, (width, height, scheme) in SHOTS.items():
                show(browser, server.url, width, height, scheme)
                (OUT / f"{name}.png").write_bytes(shot(browser))
                assert (OUT / f"{name}.png").stat().st_size < MOST_BYTES

    report()


def report() -> None:
    """Take that of the top of the report."""
    with tempfile.TemporaryDirectory() as folder, opened_browser(Path(folder) / "profile") as browser:
        page = Path(folder) / "report.html"
        write_report([full_run("rag", 130, skill=0.4), full_run("typed_rag", 130, skill=0.6)], page)
        size = {"width": 1060, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        (OUT / "report.png").write_bytes(shot(browser))
        assert (OUT / "report.png").stat().st_size < MOST_BYTES


def show(browser: webdriver.Chrome, url: str, width: int, height: int, scheme: str) -> None:
    """Ask a question in a window with these colours; in the dark, open a citation."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(url)
    browser.execute_script("sessionStorage.clear()")
    browser.find_element(By.ID, "question").send_keys(uniforms.QUESTION, Keys.ENTER)
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".cite"))
    if scheme == "dark":
        browser.find_element(By.CSS_SELECTOR, ".cite").click()


def shot(browser: webdriver.Chrome) -> bytes:
    """The visible page, as PNG."""
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


if __name__ == "__main__":
    main()
