"""The site is built without a warning, has all that it is to refer to, and needs nothing from elsewhere."""

import doctest
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'typedrag[docs]'")
import site_config_keys as config_keys
import site_parts as parts
from site_hook import notebook_page
from site_reference import reference_pages

from tests.browser import needs_browser, opened_browser, wait_for
from typedrag.cli.main import cli
from typedrag.metrics import metric_class, metric_names
from typedrag.optimizers.compile.prompt_optimizers import optimizer_class, optimizer_names

ROOT = Path(__file__).parents[2]
SOURCE = "\n".join(file.read_text("utf-8") for file in (ROOT / "typedrag").rglob("*.py"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference_pages()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stderr
    return folder


def section(page: str, title: str) -> str:
    """What stands below a heading, up to the next."""
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {title}"
    return found[1]


def commands(info: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, info
    for name, inner in info.get("commands", {}).items():
        yield from commands(inner, f"{path} {name}")


def test_every_command_and_option_is_there(pages: dict[str, str]) -> None:
    text = "\n".join(page for place, page in pages.items() if place.startswith("reference/cli/"))
    count = 0
    for path, info in commands(cli.to_info_dict(click.Context(cli)), "typedrag"):
        told = section(text, path)
        for option in info["params"]:
            if option["param_type_name"] != "option" or option["hidden"] or "--help" in option["opts"]:
                continue
            assert all(f"`{name}`" in told for name in option["opts"]), f"{path} {option['opts']}"
            count += 1
    assert count > 300


def test_every_environment_variable_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/environment.md"]
    named = set(re.findall(r'"(TYPEDRAG_[A-Z_]+)"', SOURCE)) - {"TYPEDRAG_DATASETS_BUILD"}  # what others begin with
    read = set(re.findall(r'environ(?:\.get\(|\[)"((?:JAVA|MLFLOW|OTEL_SERVICE)_[A-Z_]+)"\)?(?! =)', SOURCE))
    options = {f"TYPEDRAG_{name}" for name in ("ASK_TOP_K", "SWEEP_RUN_OUT", "DATASETS_BUILD_PREQRAG_LM")}
    assert len(named | read) > 8
    assert not {name for name in named | read | options if f"`{name}`" not in page} - {"MLFLOW_ENABLE_OTLP_EXPORTER"}


def test_every_config_key_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/config.md"]
    for title, (model, _) in config_keys.CONFIGS.items():
        schema = model.model_json_schema()
        for name, part in {title: schema, **schema.get("$defs", {})}.items():
            told = section(page, name) if "properties" in part else ""
            assert all(f"| `{key}` |" in told for key in part.get("properties", ())), name
    for name in optimizer_names():
        told = section(page, name)
        assert all(f"| `{key}` |" in told for key in optimizer_class(name).model_fields), name


def test_every_option_of_a_metric_is_there(pages: dict[str, str]) -> None:
    keys = section(pages["reference/config.md"], "Options of metrics")
    for name in metric_names():
        options = set(inspect.signature(metric_class(name)).parameters) - {"scorer", "judgments"}
        assert all(f"| `{name}` | `{option}` |" in keys for option in options), name
    assert "| `linkage` | `draws` | `1` |" in keys


def test_every_error_is_there_with_its_exit_status(pages: dict[str, str]) -> None:
    classes = dict(re.findall(r"^class ([A-Z]\w+)\(([^)]+)\)", SOURCE, re.MULTILINE))
    errors = {"TypedRAGError"}
    while more := {name for name, bases in classes.items() if errors & set(re.findall(r"\w+", bases))} - errors:
        errors |= more
    page = pages["reference/errors.md"]
    assert errors == set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) and len(errors) > 10
    assert "Exit status 2; over HTTP, 422" in section(page, "InputError")
    assert "Exit status 3; over HTTP, 503" in section(page, "MissingExtra")
    assert "Exit status 1; over HTTP, 502" in section(page, "StepFailed")


@pytest.mark.parametrize("module", [config_keys, parts])
def test_examples_of_the_scripts(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted and not failed


def test_a_notebook_is_a_page_of_its_cells_and_what_they_put_out() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Ask\n", "In Python."]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": "print('a')", "outputs": [{"output_type": "stream", "text": ["a\n"]}]},
    ]
    page = notebook_page(json.dumps({"cells": cells}))
    blocks = ["# Ask\nIn Python.", "```python\n1 + 1\n```", "```text\n2\n```", "```python\nprint('a')\n```"]
    assert page == "\n\n".join([*blocks, "```text\na\n```", ""])


def test_llms_txt_lists_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    listed = set(re.findall(r"^- \[.+\]\((\S+\.html)\)", text, re.MULTILINE))
    pages = {str(p.relative_to(ROOT / "docs").with_suffix(".html")) for p in (ROOT / "docs").rglob("*.md")}
    assert text.startswith("# typedrag\n\n> ") and pages <= listed
    assert {page for page in listed if not (site / page).exists()} == set()
    assert "reference/cli/typedrag-ask.html): Answer QUESTION from the passages of an index." in text


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"?(?:https?:)?//")
    assert not [page.name for page in site.rglob("*.html") if fetched.search(page.read_text("utf-8"))]


def test_links_to_files_of_the_repository_show_them(site: Path) -> None:
    assert "class Brevity" in re.sub(
        r"<[^>]+>", "", (site / "source/examples/typedrag-example/typedrag_example/metric.py.html").read_text("utf-8")
    )
    assert 'href="source/deploy/compose.yaml.html"' in (site / "production.html").read_text("utf-8")


@needs_browser
def test_pages_opened_from_a_folder_are_searched_and_filtered(site: Path, tmp_path: Path) -> None:
    with opened_browser(tmp_path) as browser:
        browser.get((site / "index.html").as_uri())
        browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
        browser.find_element("css selector", "input.md-search__input").send_keys("pgvector")
        wait_for(browser, lambda: browser.find_elements("css selector", ".md-search-result__link"))
        found = browser.find_elements("css selector", ".md-search-result__link")
        assert any("vector-store.html" in link.get_attribute("href") for link in found)
        browser.get((site / "reference/environment.html").as_uri())
        rows = "return [...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length"
        count = browser.execute_script(rows)
        browser.find_element("css selector", "input.filter").send_keys("typedrag ask top-k")
        assert 0 < browser.execute_script(rows) < 5 < count
