"""The commands of docs/wikipedia.md, on a few passages in the layout of DPR's file."""

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.commands import invoke

PAGE = Path(__file__).parents[2] / "docs" / "wikipedia.md"
ROWS = (
    "id\ttext\ttitle\n"
    '1\t"Aaron ( or ; ""Ahärôn"") is a prophet, high priest, and the brother of Moses."\tAaron\n'
    '2\tThe Eiffel Tower is a wrought-iron lattice tower in Paris.\t"""Eiffel"" Tower"\n'
)


def commands() -> list[list[str]]:
    """The arguments of each command of typedrag on the page."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("typedrag ")]


@pytest.fixture(autouse=True)
def passages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "psgs_w100.tsv.gz"
    file.write_bytes(gzip.compress(ROWS.encode()))
    return file


def test_the_index_is_built_described_and_searched():
    for arguments in [c for c in commands() if c[0] == "index" and c[1] in ("build", "info", "search")]:
        if {"--resume", "--dense"} & {*arguments}:  # there is nothing to continue, and no model of the hub
            continue
        done = invoke(*arguments)
        assert done.exit_code == 0, done.output
    found = invoke("index", "search", "wikipedia", "who was the brother of Moses", "--json")
    best = json.loads(found.stdout.splitlines()[0])
    assert best["id"] == "1"
    assert best["text"].startswith('Aaron ( or ; "Ahärôn") is a prophet')


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("3\tonly two columns", "its number of columns differs from the header's"),
        ('3\t"never closed\tTitle', "unexpected end of data"),
        ("\tno id\tTitle", "it has no id in field 'id'"),
        ("3\t\t", "it has no text in field 'text'"),
    ],
)
def test_a_bad_line_is_named_and_can_be_left_out(row, problem, passages, caplog):
    passages.write_bytes(gzip.compress(f"{ROWS}{row}\n".encode()))
    build = ["index", "build", passages.name, "--out", "wikipedia"]
    refused = invoke(*build)
    assert refused.exit_code != 0
    assert f"{passages.name}, line 4 cannot be used: {problem}" in refused.stderr
    skipped = invoke(*build, "--force", "--skip-bad")
    assert skipped.exit_code == 0, skipped.output
    assert caplog.text.count("left out: ") == 1
    assert "2 passages" in skipped.stderr


def test_a_download_that_broke_off_is_named(passages):
    passages.write_bytes(passages.read_bytes()[:-12])
    refused = invoke("index", "build", passages.name, "--out", "wikipedia")
    assert refused.exit_code != 0
    assert f"{passages.name} cannot be read" in refused.stderr
