from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from typedrag.errors import InputError, RetrievalError
from typedrag.records import Passage
from typedrag.retrieval import BM25Retriever, append_index, build_index, read_manifest, read_passages
from typedrag.retrieval.index import index

WORDS = "bread dough yeast oven steam crust crumb flour water salt rise bake knead fold proof cool slice".split()


def passages(count: int) -> list[Passage]:
    """Passages that differ in words and length, so that no two score the same for most queries."""
    return [
        Passage(f"p{n}", " ".join(WORDS[(n * step + 1) % len(WORDS)] for step in range(1, 5 + n % 40)), f"title {n}")
        for n in range(1, count + 1)
    ]


def build(out: Path, held: list[Passage] | None = None, **settings) -> index.Manifest:
    return build_index(passages(10) if held is None else held, out, sources=["test"], **settings)


def ids(out: Path, query: str = "bread", k: int = 100) -> list[str]:
    return [p.id for p in BM25Retriever(out).search([query], k)[0]]


def everything(out: Path) -> list[list[Passage]]:
    """What an index answers for each of the words: ids, texts, titles, scores, order."""
    return BM25Retriever(out).search(WORDS, 10_000)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(index, "_BATCH", 10)
    monkeypatch.setattr(index, "_COMMIT_ROWS", 20)


# building


def test_a_built_index_holds_its_passages_and_says_so(tmp_path):
    reported = []
    manifest = build(tmp_path / "idx", k1=1.2, b=0.75, on_progress=reported.append)
    assert read_manifest(tmp_path / "idx") == manifest
    assert (manifest.format, manifest.sources, manifest.passages) == (index.FORMAT, ("test",), 10)
    assert (manifest.k1, manifest.b) == (1.2, 0.75)
    assert len(manifest.fingerprint) == 64
    assert manifest.seconds > 0
    assert abs(datetime.fromisoformat(manifest.built_at) - datetime.now(UTC)).total_seconds() < 60
    assert set(manifest.versions) == {"typedrag", "anserini", "java"}
    assert all(manifest.versions.values())
    assert reported == [10]
    assert sorted(p.name for p in (tmp_path / "idx").iterdir()) == ["lucene", "manifest.json"]
    found = {p.id: p for [*hits] in everything(tmp_path / "idx") for p in hits}
    assert {i: (p.title, p.text) for i, p in found.items()} == {p.id: (p.title, p.text) for p in passages(10)}


def test_the_fingerprint_is_that_of_the_content(tmp_path):
    held = [Passage("1", "a b", "c"), Passage("2", "d")]
    variants = [
        held,
        [Passage("1", "a b", "C"), Passage("2", "d")],
        [Passage("1", "a B", "c"), Passage("2", "d")],
        [Passage("x", "a b", "c"), Passage("2", "d")],
        [Passage("1", "b", "c a"), Passage("2", "d")],
        held[::-1],
        held[:1],
    ]
    prints = [build(tmp_path / str(n), v).fingerprint for n, v in enumerate(variants)]
    assert len(set(prints)) == len(variants)
    assert build(tmp_path / "again", list(held), k1=2.0).fingerprint == prints[0]


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.4), (0.9, 1.1), (0.9, -0.1), (float("nan"), 0.4), (float("inf"), 0.4)])
def test_parameters_out_of_range_are_refused_before_the_build(tmp_path, k1, b):
    with pytest.raises(InputError, match="BM25 has no k1"):
        build(tmp_path / "idx", k1=k1, b=b)
    assert not (tmp_path / "idx").exists()


def test_passages_with_the_same_id_are_refused(tmp_path):
    held = [*passages(5000), Passage("p17", "another")]
    with pytest.raises(InputError, match=r"passage 5001 has the id 'p17' of one before it"):
        build(tmp_path / "idx", held)
    with pytest.raises(RetrievalError, match=r"did not finish\. Continue it with: .*--resume"):
        read_manifest(tmp_path / "idx")
    assert build(tmp_path / "idx", [*held[:-1], Passage("mended", "another")], resume=True).passages == 5001
    assert len(ids(tmp_path / "idx", " ".join(WORDS), 10_000)) == 5000


def test_a_repeated_id_before_anything_was_indexed_leaves_nothing_to_continue(tmp_path):
    with pytest.raises(InputError, match=r"passage 11 has the id 'p3' of one before it"):
        build(tmp_path / "idx", [*passages(10), Passage("p3", "again")])
    assert build(tmp_path / "idx").passages == 10


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("again", [1, 10, 11, 20, 33, 34, 54])
def test_an_id_is_found_again_however_far_back_it_is(tmp_path, again):
    with pytest.raises(InputError, match=f"passage 55 has the id 'p{again}' of one before it"):
        build(tmp_path / "idx", [*passages(54), Passage(f"p{again}", "again"), *passages(3)])


def test_no_passage_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="no passage was found in test"):
        build(tmp_path / "idx", [])
    assert not (tmp_path / "idx").exists()


def test_passages_that_lucene_cannot_take_end_the_build_with_a_line(tmp_path):
    with pytest.raises(RetrievalError, match="cannot be written to") as refused:
        build(tmp_path / "idx", [Passage("1", "half a pair \ud800")])
    assert "\n" not in str(refused.value)


# what is there already


def test_an_index_that_is_there_is_only_replaced_by_force(tmp_path):
    build(tmp_path / "idx", [Passage("old", "bread")])
    with pytest.raises(InputError, match=r"idx is there already. Replace it with --force"):
        build(tmp_path / "idx", [Passage("new", "bread")])
    assert ids(tmp_path / "idx") == ["old"]
    build(tmp_path / "idx", [Passage("new", "bread")], force=True)
    assert ids(tmp_path / "idx") == ["new"]


def test_sources_that_cannot_be_read_leave_the_index_that_force_would_replace(tmp_path):
    build(tmp_path / "idx", [Passage("old", "bread")])
    with pytest.raises(InputError, match="does not exist"):
        build_index(read_passages([tmp_path / "typo.txt"]), tmp_path / "idx", sources=["typo.txt"], force=True)
    assert ids(tmp_path / "idx") == ["old"]


@pytest.mark.parametrize("name", ["thesis.txt", "manifest.json"])  # web pages have manifests too
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_index_is_never_touched(tmp_path, name, force):
    (tmp_path / name).write_text('{"name": "mine"}')
    with pytest.raises(InputError, match="holds something that is no index"):
        build(tmp_path, force=force)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"name": "mine"}'


def test_force_leaves_other_files_of_the_folder(tmp_path):
    build(tmp_path / "idx")
    (tmp_path / "idx" / "NOTES").write_text("mine")
    build(tmp_path / "idx", force=True)
    assert (tmp_path / "idx" / "NOTES").read_text() == "mine"


def test_an_empty_folder_can_be_built_into(tmp_path):
    assert build(tmp_path).passages == 10


def test_a_file_in_the_index_s_place_is_refused(tmp_path):
    (tmp_path / "idx").write_text("a file")
    with pytest.raises(InputError, match="idx is a file"):
        build(tmp_path / "idx", force=True)
    with pytest.raises(InputError, match="inner: Not a directory"):
        build(tmp_path / "idx" / "inner")


# manifests that cannot be used


def test_a_folder_without_an_index_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RetrievalError, match=r"is no index. Build one: typedrag index build"):
            read_manifest(folder)
        with pytest.raises(RetrievalError, match="is no index"):
            BM25Retriever(folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "the manifest of index .* cannot be read"),
        ("", "the manifest of index .* cannot be read"),
        ('{"format": 1, "sour', "the manifest of index .* cannot be read"),
        ("[1]", "the manifest of index .* cannot be read"),
        ('{"format": 99, "shape": "new"}', r"is of a newer format \(99\)\. Update typedrag"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_a_line(tmp_path, text, problem):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RetrievalError, match=problem) as refused:
        read_manifest(tmp_path)
    assert "\n" not in str(refused.value)


def test_an_index_with_a_broken_manifest_can_be_built_anew(tmp_path):
    build(tmp_path / "idx")
    (tmp_path / "idx" / "manifest.json").write_text("{")
    assert build(tmp_path / "idx", force=True).passages == 10


def test_a_manifest_that_says_another_number_than_lucene_is_refused(tmp_path):
    build(tmp_path / "idx")
    path = tmp_path / "idx" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "passages": 11}))
    with pytest.raises(RetrievalError, match="holds 10 passages, its manifest says 11"):
        BM25Retriever(tmp_path / "idx")


def test_a_damaged_lucene_folder_is_refused(tmp_path):
    build(tmp_path / "idx")
    for segments in (tmp_path / "idx" / "lucene").glob("segments_*"):
        segments.write_bytes(b"damaged")
    with pytest.raises(RetrievalError, match="cannot be opened") as refused:
        BM25Retriever(tmp_path / "idx")
    assert "\n" not in str(refused.value)


# killed and resumed

COUNT = 200
KILLED_BUILD = """
import os, signal, sys
from pathlib import Path
from tests.retrieval.index.test_index import COUNT, passages
from typedrag.retrieval import build_index
from typedrag.retrieval.index import index

index._BATCH, index._COMMIT_ROWS = 10, 40
moment, out = sys.argv[1], Path(sys.argv[2])
save, write_text, saved = index._save, index.write_text, []

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def killing_at(rows):
    for number, passage in enumerate(passages(COUNT)):
        if str(number) == rows:
            kill()
        yield passage

def save_and_kill_the_third_time(out, progress):
    result = save(out, progress)
    saved.append(progress)
    if len(saved) == 3:  # begun, 40 rows, 80 rows
        kill()
    return result

if moment == "amid a commit":
    index._save = save_and_kill_the_third_time
if moment == "before the manifest":
    index.write_text = lambda path, text: kill() if path.name == "manifest.json" else write_text(path, text)
build_index(killing_at(moment), out, sources=["test"])
"""


def kill_a_build(out: Path, moment: str) -> Path:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BUILD, moment, str(out)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    return out


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "idx"
    build(out, passages(COUNT))
    return out


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A build that was killed at row 117, 80 of them committed."""
    return kill_a_build(tmp_path_factory.mktemp("killed") / "idx", "117")


@pytest.mark.parametrize(
    ("moment", "kept"),
    [
        ("25", 0),  # before anything is committed
        ("117", 80),
        ("amid a commit", 40),
        ("before the manifest", 200),
    ],
)
def test_a_killed_build_is_refused_then_resumed_to_the_same_index(tmp_path, uninterrupted, moment, kept):
    out = kill_a_build(tmp_path / "idx", moment)
    with pytest.raises(RetrievalError, match=r"did not finish\. Continue it with: typedrag index build .*--resume"):
        BM25Retriever(out)
    with pytest.raises(InputError, match=r"was begun and not finished\. Continue it with --resume"):
        build(out, passages(COUNT))
    assert index._committed_rows(out / "building" / "lucene") == kept
    resumed = build(out, passages(COUNT), resume=True)
    whole = read_manifest(uninterrupted)
    assert (resumed.fingerprint, resumed.passages) == (whole.fingerprint, whole.passages)
    assert everything(out) == everything(uninterrupted)
    assert sorted(p.name for p in out.iterdir()) == ["lucene", "manifest.json"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda held: [Passage("p1", "changed"), *held[1:]], id="the first passage"),
        pytest.param(lambda held: [*held[:79], Passage("p80", "changed"), *held[80:]], id="the last one committed"),
        pytest.param(lambda held: held[:79], id="fewer"),
        pytest.param(lambda held: held[1:], id="the first one gone"),
    ],
)
def test_a_build_whose_sources_have_changed_is_not_resumed(tmp_path, killed, change):
    out = shutil.copytree(killed, tmp_path / "idx")
    with pytest.raises(InputError, match=r"changed since its build was begun|fewer passages than were indexed before"):
        build(out, change(passages(COUNT)), resume=True)
    with pytest.raises(RetrievalError, match="did not finish"):
        read_manifest(out)


def test_a_killed_build_is_replaced_by_force(tmp_path, killed):
    out = shutil.copytree(killed, tmp_path / "idx")
    assert build(out, passages(5), force=True).passages == 5
    assert len(ids(out, " ".join(WORDS))) == 5


@pytest.mark.usefixtures("small_batches")
def test_a_build_goes_on_once_a_row_in_the_middle_is_mended(tmp_path, uninterrupted):
    source, out = tmp_path / "rows.jsonl", tmp_path / "idx"
    rows = [json.dumps({"id": p.id, "title": p.title, "text": p.text}) for p in passages(COUNT)]
    source.write_text("\n".join([*rows[:150], "{broken", *rows[151:]]))
    with pytest.raises(InputError, match=r"rows\.jsonl, line 151 "):
        build_index(read_passages([source]), out, sources=["rows.jsonl"])
    assert index._committed_rows(out / "building" / "lucene") == 150  # what was read is not indexed again
    source.write_text("\n".join(rows))
    build_index(read_passages([source]), out, sources=["rows.jsonl"], resume=True)
    assert everything(out) == everything(uninterrupted)


@pytest.mark.usefixtures("small_batches")
def test_a_build_that_broke_off_within_a_batch_is_not_resumed(tmp_path, monkeypatch):
    out = tmp_path / "idx"
    write = index._write

    def half_a_batch_once_the_disk_is_full(writer, batch, *rest):
        if batch[0].id == "p51":
            write(writer, batch[:5], *rest)
            raise RetrievalError("the disk is full")
        write(writer, batch, *rest)

    monkeypatch.setattr(index, "_write", half_a_batch_once_the_disk_is_full)
    with pytest.raises(RetrievalError, match="the disk is full"):
        build(out, passages(COUNT))
    monkeypatch.setattr(index, "_write", write)
    with pytest.raises(RetrievalError, match=r"broke off within a batch. Build again with --force"):
        build(out, passages(COUNT), resume=True)


def test_resume_without_a_begun_build_builds(tmp_path):
    assert build(tmp_path / "idx", resume=True).passages == 10


def test_resume_does_not_replace_a_finished_index(tmp_path):
    build(tmp_path / "idx")
    with pytest.raises(InputError, match="is there already"):
        build(tmp_path / "idx", resume=True)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_progress_that_cannot_be_read_is_refused(tmp_path, content):
    (tmp_path / "building").mkdir()
    (tmp_path / "building" / "progress.json").write_bytes(content)
    with pytest.raises(RetrievalError, match=r"progress of index .* cannot be read"):
        build(tmp_path, resume=True)
    assert build(tmp_path, force=True).passages == 10


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written to"):
        build(tmp_path / "idx")


# adding to


def append(out: Path, held: list[Passage], **settings) -> index.Manifest:
    return append_index(held, out, sources=["more"], **settings)


def test_what_was_added_answers_as_if_it_had_been_built_so(tmp_path, uninterrupted):
    out = tmp_path / "idx"
    built, reported = build(out, passages(150), k1=1.2), []
    added = append(out, passages(COUNT)[150:], on_progress=reported.append)
    assert (added.passages, added.sources, added.k1) == (COUNT, ("test", "more"), 1.2)
    assert read_manifest(out) == added and reported == [50]
    assert added.fingerprint not in (built.fingerprint, read_manifest(uninterrupted).fingerprint)
    retriever = BM25Retriever(out, k1=index.K1)
    assert retriever.search(WORDS, 10_000) == everything(uninterrupted)
    assert sorted(p.id for p in retriever.passages()) == sorted(p.id for p in passages(COUNT))


def test_an_id_that_is_there_is_refused_and_leaves_the_index_as_it_was(tmp_path):
    out = tmp_path / "idx"
    built = build(out)
    for twice in ([*passages(12)[10:], Passage("p3", "again")], passages(10)):
        with pytest.raises(InputError, match=r"passages are in the index already, such as 'p\d'"):
            append(out, twice)
        assert read_manifest(out) == built and len(ids(out, " ".join(WORDS))) == 10
        assert not (out / "progress.json").exists()
    with pytest.raises(InputError, match="no passage was found in more"):
        append(out, [])
    assert read_manifest(out) == built


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("where", [3, 25, 75])  # in the first batch, after it, after two commits
@pytest.mark.parametrize("repeated", ["p7", "p151"], ids=["in the index", "in what is added"])
def test_an_id_that_is_not_unique_undoes_an_addition(tmp_path, monkeypatch, repeated, where, linked):
    out, more = tmp_path / "idx", passages(COUNT + 30)[150:]
    if not linked:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    built = build(out, passages(150))
    before = everything(out)
    with pytest.raises(InputError, match=f"(passage {where + 1} has the id|such as) '{repeated}'"):
        append(out, [*more[:where], Passage(repeated, "again"), *more[where:]])
    assert sorted(p.name for p in out.iterdir()) == ["lucene", "manifest.json"]
    assert read_manifest(out) == built and everything(out) == before
    added = append(out, more[1:])  # mended at the one that came first
    assert added.passages == 150 + len(more) - 1
    assert sorted(p.name for p in out.iterdir()) == ["lucene", "manifest.json"]


@pytest.mark.usefixtures("small_batches")
def test_an_id_that_is_not_unique_undoes_an_addition_that_is_continued(tmp_path):
    out, more = tmp_path / "idx", passages(COUNT)[100:]
    built = build(out, passages(100))
    before = everything(out)

    def broken():
        yield from more[:57]
        raise InputError("row 158 is torn")

    with pytest.raises(InputError, match="torn"):
        append(out, broken())
    with pytest.raises(InputError, match="passage 101 has the id 'p101'"):
        append(out, [*more, Passage("p101", "again")], resume=True)
    assert read_manifest(out) == built and everything(out) == before
    assert append(out, more).passages == COUNT


@pytest.mark.usefixtures("small_batches")
def test_an_addition_that_broke_off_is_refused_then_continued_to_the_same(tmp_path, uninterrupted):
    out = tmp_path / "idx"
    build(out, passages(100))
    before, more = everything(out), passages(COUNT)[100:]

    def broken():
        yield from more[:57]
        raise InputError("row 158 is torn")

    with pytest.raises(InputError, match="torn"):
        append(out, broken())
    assert everything(out) == before
    for refused in (lambda: append(out, more), lambda: build(out, passages(100), resume=True)):
        with pytest.raises(
            InputError, match=r"an addition to index .* begun and not finished\. Continue it with.*--resume"
        ):
            refused()
    with pytest.raises(InputError, match="changed since"):
        append(out, [Passage("p101", "changed"), *more[1:]], resume=True)
    assert append(out, more, resume=True).passages == COUNT
    assert everything(out) == everything(uninterrupted)
    assert sorted(p.name for p in out.iterdir()) == ["lucene", "manifest.json"]


def test_an_addition_to_no_index_is_refused(tmp_path):
    with pytest.raises(RetrievalError, match="is no index"):
        append(tmp_path, passages(3))
    assert not list(tmp_path.iterdir())
