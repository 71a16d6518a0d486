"""Take the screenshots of the server's page, of a report, of a sweep's page and of MLflow's.

    python -m scripts.page_screenshots

The answers on the server's page are written in tests/serving/uniforms.py, and its index is that of the sample corpus.
The report compares two invented runs. The sweep is that of the tutorial, and MLflow also holds two evaluations: they
ask SmolLM2, the smallest LM, which takes minutes.
"""

import base64
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import opened_browser, wait_for
from tests.experiments.runs import full_run
from tests.lm_server import lm_server
from tests.mlflow_stores import mlflow_server
from tests.serving import uniforms
from tests.serving.server import program, served
from typedrag.datasets.sample import PASSAGES
from typedrag.experiments.report import write_report
from typedrag.retrieval import BM25Retriever, build_index, read_passages

DOCS = Path(__file__).parents[1] / "docs"
OUT = DOCS / "images"
SHOTS = {"page-light": (1060, 800, "light"), "page-dark": (1000, 640, "dark"), "page-phone": (390, 844, "light")}
"""The width, height and colours of each screenshot."""
COMMANDS = (
    "sweep passages.yaml --out sweeps/passages",
    "sweep best sweeps/passages --within 2%-of-best --cheapest",
    "sweep report sweeps/passages --out page.md",
    "evaluate --program direct_lm --dataset sample --limit 4 --metric retrieval --max-tokens 40 --out runs/direct_lm",
    "evaluate --program rag --dataset sample --limit 4 --metric retrieval --max-tokens 40 --out runs/rag",
)
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
                keep(name, browser)

    with tempfile.TemporaryDirectory() as folder, opened_browser(Path(folder) / "profile") as browser:
        report(browser, Path(folder))
        make_runs(Path(folder))
        sweep(browser, Path(folder))
        runs(browser, Path(folder))


def report(browser: webdriver.Chrome, folder: Path) -> None:
    """Take that of the top of a report."""
    page = folder / "report.html"
    write_report([full_run("rag", 130, skill=0.4), full_run("typed_rag", 130, skill=0.6)], page)
    resize(browser, 1060, 800)
    browser.get(page.as_uri())
    keep("report", browser)


def make_runs(folder: Path) -> None:
    """Make the tutorial's sweep and two evaluations, and log them to MLflow."""
    tutorial = (DOCS / "tutorials" / "sweep.md").read_text("utf-8")
    file = re.search(r'```yaml title="passages.yaml"\n(.*?)```', tutorial, re.DOTALL)
    assert file
    (folder / "passages.yaml").write_text(file[1])
    environment = {**os.environ, "TYPEDRAG_LM": "embedded:smollm2-135m", "TYPEDRAG_DATA": str(folder)}
    for command in COMMANDS:
        words = [sys.executable, "-m", "typedrag", *shlex.split(command)]
        subprocess.run(words, cwd=folder, env=environment, check=True)


def sweep(browser: webdriver.Chrome, folder: Path) -> None:
    """Take that of the top of a sweep's page."""
    resize(browser, 1060, 860)
    browser.get((folder / "sweeps" / "passages" / "figures" / "figures.html").as_uri())
    keep("sweep", browser)


def runs(browser: webdriver.Chrome, folder: Path) -> None:
    """Take that of MLflow's table of runs, with whole names and the sweep's trials, without the assistant."""
    resize(browser, 1060, 640)
    with mlflow_server(f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}") as url:
        browser.get(f"{url}/#/experiments/1/runs?workflowType=machine_learning")
        close, name = '[data-component-id="mlflow.assistant.chat_panel.close"]', '[col-id="attributes.`Run Name`"]'
        buttons = (close, f"{name} button")
        wait_for(browser, lambda: all(browser.find_elements(By.CSS_SELECTOR, button) for button in buttons), 100)
        for button in buttons:
            browser.execute_script("arguments[0].click()", browser.find_element(By.CSS_SELECTOR, button))
        wait_for(browser, lambda: "trial-0" in browser.find_element(By.TAG_NAME, "body").text)
        edge = browser.find_element(By.CSS_SELECTOR, f"{name} .ag-header-cell-resize")
        ActionChains(browser).pause(1).double_click(edge).pause(1).perform()
        keep("mlflow", browser)


def resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def show(browser: webdriver.Chrome, url: str, width: int, height: int, scheme: str) -> None:
    """Ask a question in a window with these colours; in the dark, open a citation."""
    resize(browser, width, height)
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


def keep(name: str, browser: webdriver.Chrome) -> None:
    """Write the visible page as PNG."""
    content = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    assert len(content) < MOST_BYTES
    (OUT / f"{name}.png").write_bytes(content)


if __name__ == "__main__":
    main()
