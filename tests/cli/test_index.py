import json

import pytest

from tests.builders.native import publish
from tests.commands import invoke as run
from tests.retrieval.encoders import save_encoder


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


def test_the_contexts_of_questions_are_indexed_by_one_command(tmp_path):
    files = publish(tmp_path)
    out = tmp_path / "idx"
    done = run("index", "build", "--contexts", files["musique"], files["two_wiki"], "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("9 passages in ")
    assert "Forth Bridge" in run("index", "search", out, "John Fowler designed").stdout
    refused = run("index", "build", "--contexts", files["musique"], "--fields", "id=docno", "--out", tmp_path / "other")
    assert (refused.exit_code, "--contexts knows the fields of its files" in refused.stderr) == (2, True)
    refused = run("index", "build", "--contexts", files["nq"], "--out", tmp_path / "other")
    assert refused.exit_code == 2 and "line 1" in refused.stderr and "it has neither paragraphs" in refused.stderr


def test_info_prints_the_manifest(tmp_path, folder):
    run("index", "build", folder, "--out", tmp_path / "idx", "--k1", "1.2", "--b", "0.75")
    done = run("index", "info", tmp_path / "idx")
    manifest = json.loads(done.stdout)
    assert (manifest["passages"], manifest["sources"]) == (2, [str(folder)])
    assert (manifest["k1"], manifest["b"]) == (1.2, 0.75)


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


def test_an_index_is_replaced_by_force_alone(index, folder):
    refused = run("index", "build", folder, "--out", index)
    assert refused.exit_code == 2
    assert refused.stderr == f"Error: index {index} is there already. Replace it with --force\n"
    (folder / "new.txt").write_text("New text.")
    assert run("index", "build", folder, "--out", index, "--force").exit_code == 0
    assert json.loads(run("index", "info", index).stdout)["passages"] == 3


def test_bad_files_are_left_out_of_what_is_built_and_added(index, tmp_path):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "other"
    rows.write_text('{oops}\n{"id": "m1", "text": "Zebras have stripes."}\n')
    assert run("index", "append", rows, "--out", index).exit_code == 2
    assert run("index", "append", rows, "--out", index, "--skip-bad").exit_code == 0
    assert run("index", "build", rows, "--out", out, "--skip-bad").exit_code == 0
    assert json.loads(run("index", "info", out).stdout)["passages"] == 1


def test_an_index_is_added_to(index, tmp_path):
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "m1", "text": "Zebras have stripes."}\n')
    done = run("index", "append", more, "--out", index)
    assert (done.exit_code, done.stdout) == (0, "") and done.stderr.startswith("3 passages in ")
    assert "m1" in run("index", "search", index, "zebra").stdout
    again = run("index", "append", more, "--out", index)
    assert again.exit_code == 2
    assert f"1 passages are in the index already, such as 'm1': {more}, line 1. " in again.stderr


def test_a_repeated_id_leaves_the_index_and_can_be_mended(index, tmp_path):
    more, other = tmp_path / "more.jsonl", tmp_path / "other"
    more.write_text('{"id": "m1", "text": "Zebras have stripes."}\n{"id": "m1", "text": "Lions do not."}\n')
    refused = run("index", "append", more, "--out", index)
    assert refused.exit_code == 2
    assert f"passage 2 has the id 'm1' of one before it: {more}, line 1 and {more}, line 2. " in refused.stderr
    assert run("index", "search", index, "bread").exit_code == 0
    refused = run("index", "build", more, "--out", other)
    assert refused.exit_code == 2 and "passage 2 has the id 'm1' of one before it" in refused.stderr
    more.write_text('{"id": "m0", "text": "Zebras have stripes."}\n{"id": "m1", "text": "Lions do not."}\n')
    assert run("index", "append", more, "--out", index).stderr.startswith("4 passages in ")
    assert run("index", "build", more, "--out", other).stderr.startswith("2 passages in ")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def test_an_index_of_both_parts_is_built_described_searched_and_added_to(tmp_path, folder, model):
    out, more = tmp_path / "idx", tmp_path / "more.jsonl"
    built = run("index", "build", folder, "--out", out, "--dense", model, "--query-prompt", "query ")
    assert built.exit_code == 0, built.stderr
    assert [line.partition(" in ")[0] for line in built.stderr.splitlines()] == [
        "2 passages", f"2 passages embedded with {model}",
    ]  # fmt: skip
    info = json.loads(run("index", "info", out).stdout)
    assert info["passages"] == info["dense"]["passages"] == 2
    assert info["fingerprint"] == info["dense"]["fingerprint"]
    assert info["dense"]["encoder"]["query_prompt"] == "query "
    for retriever in ("dense", "hybrid", "hybrid:0.5", "auto"):
        found = run("index", "search", out, "bread", "--retriever", retriever, "--json")
        assert len(found.stdout.splitlines()) == 2, found.stderr
    assert run("index", "search", out, "bread", "--retriever", "auto", "--k1", 2).exit_code == 0
    refused = run("index", "search", out, "bread", "--retriever", "dense", "--k1", 2)
    assert refused.exit_code == 2 and "--k1 and --b are of BM25" in refused.stderr
    more.write_text('{"id": "m1", "text": "cat dog bird"}\n')
    assert run("index", "append", more, "--out", out).exit_code == 0
    info = json.loads(run("index", "info", out).stdout)
    assert info["passages"] == info["dense"]["passages"] == 3
    assert info["fingerprint"] == info["dense"]["fingerprint"]
    assert len(run("index", "search", out, "cat", "--retriever", "hybrid", "--json").stdout.splitlines()) == 3


def test_what_an_index_holds_is_embedded_later(index, model, folder):
    assert run("index", "search", index, "bread", "--retriever", "dense").exit_code == 3
    done = run("index", "build", "--out", index, "--dense", model)
    assert done.exit_code == 0 and done.stderr.startswith("2 passages embedded")
    assert run("index", "search", index, "bread", "--retriever", "dense").exit_code == 0
    assert run("index", "build", folder, "--out", index, "--force").exit_code == 0
    assert "dense" not in json.loads(run("index", "info", index).stdout)  # it would be of other passages


def test_a_dense_part_can_stand_alone(tmp_path, folder, model):
    out, more = tmp_path / "idx", tmp_path / "more.jsonl"
    arguments = ("index", "build", folder, "--out", out, "--dense", model, "--no-bm25")
    assert run(*arguments).exit_code == 0
    assert set(json.loads(run("index", "info", out).stdout)) == {"dense"}
    assert run("index", "search", out, "bread", "--retriever", "auto").exit_code == 0
    refused = run(*arguments)
    assert refused.exit_code == 2 and "is there already. Replace it with --force" in refused.stderr
    assert run(*arguments, "--force").exit_code == 0
    more.write_text('{"id": "m1", "text": "cat dog bird"}\n')
    assert run("index", "append", more, "--out", out).exit_code == 0
    assert json.loads(run("index", "info", out).stdout)["dense"]["passages"] == 3
    sparse = run("index", "search", out, "bread")
    assert f"index {out} has no BM25 part. Search its dense part: --retriever dense, or auto" in sparse.stderr
    without = run("index", "build", folder, "--out", tmp_path / "other", "--no-bm25")
    assert without.exit_code == 2 and "needs a part to be searched by" in without.stderr


def test_embedding_that_was_killed_is_resumed(tmp_path, folder, model, monkeypatch):
    from typedrag.retrieval import Encoder

    out, encode = tmp_path / "idx", Encoder.encode_passages
    monkeypatch.setattr(Encoder, "encode_passages", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    arguments = ("index", "build", folder, "--out", out, "--dense", model)
    assert run(*arguments).exit_code != 0
    monkeypatch.setattr(Encoder, "encode_passages", encode)
    assert "did not finish" in run("index", "search", out, "bread", "--retriever", "hybrid").stderr
    assert "begun and not finished. Continue it with --resume" in run(*arguments).stderr
    refused = run(*arguments, tmp_path / "idx", "--resume", "--k1", "2")
    assert refused.exit_code == 2
    assert "bm25.k1 (0.9, now 2.0). Continue it as it was begun, or give it up with --force" in refused.stderr
    assert run(*arguments, "--resume").exit_code == 0
    assert run("index", "search", out, "bread", "--retriever", "hybrid").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["build", "{tmp}/missing", "--out", "{tmp}/idx"], 2, "does not exist"),
        (["build", "{tmp}/documents", "--out", "{tmp}/idx", "--fields", "nonsense"], 2, "is no field mapping"),
        (["build", "{tmp}/documents", "--out", "{tmp}/idx", "--k1", "-1"], 2, "BM25 has no k1 = -1.0"),
        (["build", "{tmp}/documents", "--out", "{tmp}/documents"], 2, "holds something that is no index"),
        (["info", "{tmp}/documents"], 3, "is no index"),
        (["append", "{tmp}/documents", "--out", "{tmp}/idx"], 3, "is no index"),
        (["build", "--out", "{tmp}/idx", "--dense", "{tmp}/nothing"], 3, "cannot be loaded"),
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
