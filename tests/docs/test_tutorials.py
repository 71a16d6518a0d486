"""Tutorials and notebooks do what they say: each runs from its first line to its last in an empty folder.

The `sh` and `python` fences of a tutorial are run in one shell, one after the other. A `text` fence holds what the one
before it prints, with … for what may differ. A fence whose title is a file name is written to that file; one with
another title is for readers alone. LMs write less than readers let them.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt
from nbclient import NotebookClient

from tests.mlflow_stores import new_store
from typedrag.lms.models import fetch

ROOT = Path(__file__).parents[2]
SHELL = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
ENDED = "--- a fence has ended ---\n"
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

pytestmark = pytest.mark.lm


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the sample passages, and replies to the same prompts, are made once for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(tmp_path: Path, cache: Path) -> dict[str, str]:
    """Of a shell that finds typedrag and the repository's examples; pip puts packages beside the tutorial."""
    home = {"TYPEDRAG_CACHE": str(cache), "TYPEDRAG_DATA": str(tmp_path / "data")}
    home |= {"TYPEDRAG_MODELS": str(fetch("smollm2-135m").parent)}
    new_store(tmp_path / "data" / "mlflow")
    for folder in ("examples", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    packages = tmp_path / "packages"
    pip = {"TARGET": str(packages), "UPGRADE": "1", "NO_DEPS": "1", "NO_INDEX": "1", "NO_BUILD_ISOLATION": "0"}
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": f"{packages}:{ROOT}"}
    return {**os.environ, **{f"PIP_{name}": value for name, value in pip.items()}, **paths, **home, "COLUMNS": "100"}


def brief(text: str) -> str:
    """The same with answers of at most 40 tokens."""
    return re.sub(r"(max[-_]tokens\W+)\d{2,}", r"\g<1>40", text)


def as_shell(language: str, title: str, content: str) -> str:
    """The commands that do what a fence says."""
    if Path(title).suffix:
        return f"mkdir -p '{Path(title).parent}'\ncat > '{title}' <<'END OF FILE'\n{content}END OF FILE\n"
    if title:
        return ""
    return f"python - <<'END OF FILE'\n{content}END OF FILE\n" if language == "python" else content


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/tutorials/*.md")), ids=lambda page: page.stem)
def test_a_tutorial_is_followed_to_its_end(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    commands, printed = [], {}
    for fence in (token for token in MarkdownIt().parse(brief(page.read_text("utf-8"))) if token.type == "fence"):
        language, _, title = fence.info.partition(" title=")
        if (language, title) == ("text", ""):
            printed[len(commands) - 1] = fence.content
        else:
            commands.append(as_shell(language, title.strip('"'), fence.content))
    done = subprocess.run(
        ["bash", "-c", SHELL + "".join(f"{command}\necho '{ENDED.strip()}'\n" for command in commands)],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    outputs = done.stdout.split(ENDED)
    for n, expected in printed.items():
        alike = doctest.OutputChecker().check_output(expected.replace("…", "..."), outputs[n], LOOSELY)
        assert alike, f"{commands[n]}\nprints\n{outputs[n]}\nnot\n{expected}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda page: page.stem)
def test_a_notebook_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    notebook = nbformat.reads(brief(page.read_text("utf-8")), as_version=4)
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
