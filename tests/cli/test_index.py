from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from typedrag.cli.main import cli


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "bread.txt").write_text("Bread rises because yeast makes gas.")
    (documents / "paint.md").write_text("# Painting\n\nPaint covers walls: é 😀.")
    return documents


@pytest.fixture
def index(tmp_path, folder):
    out = tmp_path / "idx"
    assert run("index", "build", folder, "--out", out).exit_code == 0
    return out


def test_build_says_on_stderr_what_it_built(tmp_path, folder):
    done = run("index", "build", folder, "--out", tmp_path / "idx", "--k1", "1.2", "--b", "0.75")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert done.stderr.startswith("2 passages in ")
    assert str(tmp_path / "idx") in done.stderr


def test_info_prints_the_manifest(tmp_path, folder):
    run("index", "build", folder, "--out", tmp_path / "idx", "--k1", "1.2", "--b", "0.75")
    done = run("index", "info", tmp_path / "idx")
    manifest = json.loads(done.stdout)
    assert (manifest["passages"], manifest["sources"]) == (2, [str(folder)])
    assert (manifest["k1"], manifest["b"]) == (1.2, 0.75)


def test_search_prints_passages_best_first(index):
    done = run("index", "search", index, "walls")
    assert done.exit_code == 0
    assert "paint.md#1  Painting" in done.stdout
    assert "bread" not in done.stdout


def test_search_prints_json_lines(index):
    done = run("index", "search", index, "paint bread", "--json", "-k", "5")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["id"] for row in rows) == ["bread.txt#1", "paint.md#1"]
    assert rows[0]["score"] >= rows[1]["score"]
    assert all(set(row) == {"id", "title", "text", "score"} for row in rows)
    assert "é 😀" in done.stdout
    assert len(run("index", "search", index, "paint bread", "--json", "-k", "1").stdout.splitlines()) == 1


def test_search_takes_parameters_of_its_own(index):
    def score(*settings):
        return json.loads(run("index", "search", index, "bread", "--json", *settings).stdout)["score"]

    assert score("--k1", "0") != score() != score("--b", "1", "--k1", "3")


def test_search_that_finds_nothing_says_so_on_stderr(index):
    done = run("index", "search", index, "zebra")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no passage found\n")


def test_rows_of_other_fields_are_mapped(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"docno": "d1", "body": "Bread rises."}\n')
    out = tmp_path / "idx"
    assert run("index", "build", rows, "--out", out, "--fields", "id=docno,text=body").exit_code == 0
    assert "d1" in run("index", "search", out, "bread").stdout


def test_an_index_is_replaced_by_force_alone(index, folder):
    refused = run("index", "build", folder, "--out", index)
    assert refused.exit_code == 2
    assert refused.stderr == f"Error: index {index} is there already. Replace it with --force\n"
    (folder / "new.txt").write_text("New text.")
    assert run("index", "build", folder, "--out", index, "--force").exit_code == 0
    assert json.loads(run("index", "info", index).stdout)["passages"] == 3


def test_a_build_that_broke_off_is_resumed(tmp_path):
    rows = tmp_path / "rows.jsonl"
    good = [json.dumps({"id": n, "text": f"Bread number {n}."}) for n in range(2_500)]
    rows.write_text("\n".join([*good[:2_400], "{broken", *good[2_401:]]))
    out = tmp_path / "idx"
    broken = run("index", "build", rows, "--out", out)
    assert broken.exit_code == 2
    assert f"{rows}, line 2401 cannot be used" in broken.stderr
    assert run("index", "search", out, "bread").exit_code == 3
    rows.write_text("\n".join(good))
    assert run("index", "build", rows, "--out", out).exit_code == 2
    assert run("index", "build", rows, "--out", out, "--resume").exit_code == 0
    assert json.loads(run("index", "info", out).stdout)["passages"] == 2_500


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["build", "{tmp}/missing", "--out", "{tmp}/idx"], 2, "does not exist"),
        (["build", "{tmp}/documents", "--out", "{tmp}/idx", "--fields", "nonsense"], 2, "is no field mapping"),
        (["build", "{tmp}/documents", "--out", "{tmp}/idx", "--k1", "-1"], 2, "BM25 has no k1 = -1.0"),
        (["build", "{tmp}/documents", "--out", "{tmp}/documents"], 2, "holds something that is no index"),
        (["info", "{tmp}/documents"], 3, "is no index"),
        (["search", "{tmp}/missing", "bread"], 3, "is no index"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(tmp_path, folder, arguments, code, message):
    done = run("index", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.exit_code == code
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "idx").exists()


@pytest.mark.parametrize(
    "arguments", [["build", "x"], ["build", "--out", "x"], ["search", "x"], ["search", "x", "y", "-k", "0"]]
)
def test_what_is_missing_is_a_usage_error(arguments):
    done = run("index", *arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.stderr
