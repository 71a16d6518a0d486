"""Chromium without a window, for tests of pages."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="needs selenium: it is among the packages for development")
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver: apt-get install chromium chromium-driver"
)


@contextmanager
def opened_browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser that keeps what it says in its console, with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--window-size=1280,900", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def wait_for(browser: webdriver.Chrome, holds: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds."""
    WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda _: holds())
