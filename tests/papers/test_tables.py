"""Every table of the papers is made, on small files of its data's real shape and by the smallest LM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.lm_server import lm_server
from tests.papers.data import STUB, variable, write_data
from tests.retrieval.berts import save_bert
from typedrag.cli.main import cli
from typedrag.papers.config import find_tables
from typedrag.papers.experiments import experiments_of, needed

FOLDER = Path(__file__).parents[2] / "configs" / "papers"
TABLES = find_tables(FOLDER)


@pytest.fixture(scope="session")
def places(tmp_path_factory, sample_index):
    return write_data(tmp_path_factory.mktemp("papers"), sample_index)


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"), labels=0)


@pytest.fixture
def make(places, bert, tmp_path, monkeypatch, server):
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)

    def run(table, *arguments, limit=3):
        for name in needed(experiments_of(table, {})):
            monkeypatch.setenv(name, variable(name, places))
        small = ["--set", f"metrics.bertscore.options.model={bert}"] if "bertscore" in str(table.values) else []
        given = ["--folder", str(FOLDER), "--limit", str(limit), "--no-tracking", *small, *map(str, arguments)]
        return CliRunner().invoke(cli, ["papers", "run", table.name, *given], catch_exceptions=False)

    return run


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_made_to_its_end_and_its_page_shows_all_cells(table, make):
    done = make(table)
    assert done.exit_code == 0, done.output
    page = (table.folder / f"{Path(table.name).name}.md").read_text()
    told = json.loads((table.folder / f"{Path(table.name).name}.json").read_text())
    cells = {(c["row"], c["column"]): c for c in told["cells"]}
    assert len(cells) == len(table.config.rows) * len(table.config.columns)
    for row in table.config.rows:
        for column, published in zip(table.config.columns, row.published, strict=bool(row.published)):
            assert cells[row.name, column.name]["published"] == published
        assert f"| {row.name} |" in page
    for cell in cells.values():
        assert (cell["ours"] is None) == bool(cell["lacks"])
    lines = page.splitlines()
    assert all(line.count("|") == len(table.config.columns) + 2 for line in lines if line.startswith("| "))
    # what has no value has it from the small files, not from a name that is wrong
    unexpected = {c["lacks"] for c in cells.values()} - _DECLARED - {
        "no question of this group was drawn", "", "nothing was compared", "no answer was measured",
    }  # fmt: skip
    assert not unexpected, unexpected
    assert any(c["ours"] for c in cells.values())


_DECLARED = {
    where.lacks for t in TABLES for row in t.config.rows for column in t.config.columns
    if (where := t.config.cell(row, column)).lacks
}  # fmt: skip
