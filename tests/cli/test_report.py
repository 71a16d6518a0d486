from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner

from tests.experiments.runs import full_run, write_run
from typedrag.cli.main import cli


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    home = tmp_path_factory.mktemp("runs")
    return [str(write_run(full_run(name, 6), home / name)) for name in ("rag", "typed_rag")]


def test_a_page_is_written(folders, tmp_path: Path):
    out = tmp_path / "report.html"
    done = CliRunner().invoke(cli, ["report", *folders, "--out", str(out), "--title", "Two programs"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.endswith(f"2 runs: {out}\n")
    page = BeautifulSoup(out.read_text("utf-8"), "html.parser")
    assert page.title.get_text() == page.h1.get_text() == "Two programs"
    assert page.select_one("#comparison")
    assert not page.select_one("#preferences")


def test_what_cannot_be_read_is_refused(folders, tmp_path: Path):
    for arguments, problem in (
        ([str(tmp_path), "--out", str(tmp_path / "r.html")], "holds no run"),
        (
            [*folders, "--out", str(tmp_path / "r.html"), "--pairwise", str(tmp_path / "no.json")],
            "no.json cannot be read",
        ),
        ([*folders, "--out", str(tmp_path / "no" / "r.html")], "no/r.html: No such file"),
    ):
        done = CliRunner().invoke(cli, ["report", *arguments])
        assert done.exit_code == 2
        assert problem in done.stderr
