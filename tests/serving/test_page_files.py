import re
from pathlib import Path

import pytest

import typedrag
from tests.experiments.report.test_report import contrast
from tests.lm_server import lm_server
from tests.serving.server import program, served

FOLDER = Path(typedrag.__file__).parent / "serving" / "page"
_GROUNDS = {"text": ("page", "raised", "tint"), "soft": ("page", "raised"), "accent": ("page", "raised", "tint")}
PAIRS = [(ink, ground) for ink, grounds in _GROUNDS.items() for ground in grounds] + [
    ("on-accent", "accent"),
    ("page", "text"),
]


def colours(theme: int) -> dict[str, str]:
    """The page's colours by name, in the light theme (0) or the dark one (1)."""
    css = (FOLDER / "style.css").read_text("utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    return {name: both[theme] for name, *both in pairs}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_contrast(theme):
    of = colours(theme)
    ratios = {(ink, ground): contrast(of[ink], of[ground]) for ink, ground in PAIRS}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


def test_the_page_and_its_files_come_with_the_policy_that_it_keeps_to(tmp_path):
    with lm_server() as lm, served(program(lm)) as server:
        replies = [server.client.get("/"), *(server.client.get(f"/static/{file.name}") for file in FOLDER.iterdir())]
        assert server.client.head("/").status_code == 200
        known = server.client.get("/static/style.css").headers["ETag"]
        assert server.client.get("/static/style.css", headers={"If-None-Match": known}).status_code == 304
    assert {reply.status_code for reply in replies} == {200}
    assert all(reply.headers["Content-Security-Policy"].startswith("default-src 'none'; ") for reply in replies)
    assert replies[0].headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'data-feedback="off"' in replies[0].text
    with lm_server() as lm, served(program(lm), feedback=tmp_path / "feedback.jsonl") as server:
        assert 'data-feedback="on"' in server.client.get("/").text


@pytest.mark.parametrize("name", ["nothing.js", "..%2fapi%2fpage.py", "%2e%2e/service.py", "..%5cservice.py", "%00"])
def test_other_files_are_not_served(name):
    with lm_server() as lm, served(program(lm)) as server:
        assert server.client.get(f"/static/{name}").status_code in (400, 404)


def test_there_is_no_page_where_the_settings_say_so():
    with lm_server() as lm, served(program(lm), page=False) as server:
        assert server.client.get("/").status_code == 404
        assert server.client.get("/static/page.js").status_code == 404


def test_nothing_is_within_the_page_that_the_policy_forbids():
    html = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"\son\w+=|style=|<style|javascript:|https?://", html)
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [""]
    scripts = "\n".join(file.read_text("utf-8") for file in FOLDER.glob("*.js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", scripts
    )
